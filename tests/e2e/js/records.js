'use strict'
// kafkajs for the end-to-end tests: one JSON order a line on stdin, one JSON answer a line on stdout.
// Records travel in files; tests/support/record_file.py describes their layout. Its consumer is not here:
// it reads only as a member of a group.
const fs = require('node:fs')
const readline = require('node:readline')
const kafkajs = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const { CompressionCodecs, CompressionTypes } = kafkajs
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const ZSTD_LEVEL = 3
// Each send makes one batch a partition; with 900 KB records this stays below the topic's bound.
const MOST_BYTES_A_SEND = 500_000

// kafkajs brings gzip alone, and takes the others from outside. Its own plug-ins for lz4 and zstd are built
// from C when they are installed, and lz4js writes frames that the Java client cannot read.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, ZSTD_LEVEL)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

const ORDERS = { create, describe, produce, end }

async function create(order) {
  const topic = { topic: order.topic, numPartitions: order.partition_count, replicationFactor: 1 }
  const created = await asAdmin(order, (admin) => admin.createTopics({ topics: [topic] }))
  return created ? {} : { kind: 'TopicExists', error: order.topic }
}

async function describe(order) {
  const found = await asAdmin(order, (admin) => admin.fetchTopicMetadata({ topics: [order.topic] }))
  return { partition_count: found.topics[0].partitions.length }
}

async function end(order) {
  const found = await asAdmin(order, (admin) => admin.fetchTopicOffsets(order.topic))
  return { offset: Number(found.find((one) => one.partition === order.partition).high) }
}

async function produce(order) {
  const producer = client(order).producer({
    idempotent: order.idempotent,
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: false,
  })
  const settings = { topic: order.topic, acks: -1, compression: CODECS[order.codec], timeout: order.timeout_ms }
  const offsets = []
  await producer.connect()
  try {
    for (const messages of shares(readRecords(order.file))) {
      const acks = await producer.send({ ...settings, messages })
      const next = new Map(acks.map((ack) => [ack.partition, Number(ack.baseOffset)]))
      for (const { partition } of messages) {
        offsets.push(next.get(partition))
        next.set(partition, next.get(partition) + 1)
      }
    }
  } finally {
    await producer.disconnect()
  }
  return { offsets }
}

async function asAdmin(order, call) {
  const admin = client(order).admin()
  await admin.connect()
  try {
    return await call(admin)
  } finally {
    await admin.disconnect()
  }
}

function client(order) {
  const brokers = [order.bootstrap]
  return new kafkajs.Kafka({ brokers, requestTimeout: order.timeout_ms, logLevel: kafkajs.logLevel.WARN })
}

function* shares(messages) {
  let share = []
  let bytes = 0
  for (const message of messages) {
    const size = (message.key?.length ?? 0) + (message.value?.length ?? 0)
    if (share.length > 0 && bytes + size > MOST_BYTES_A_SEND) {
      yield share
      share = []
      bytes = 0
    }
    share.push(message)
    bytes += size
  }
  if (share.length > 0) {
    yield share
  }
}

function* readRecords(path) {
  const data = fs.readFileSync(path)
  let at = 0
  const readSized = () => {
    const length = data.readInt32BE(at)
    at += 4
    if (length < 0) {
      return null
    }
    at += length
    return data.subarray(at - length, at)
  }
  while (at < data.length) {
    const partition = data.readInt32BE(at)
    // In between: the offset, not known yet, and the timestamp type, which is the topic's business.
    const timestamp = data.readBigInt64BE(at + 13).toString()
    at += 21
    const key = readSized()
    const value = readSized()
    const headers = {}
    let left = data.readInt32BE(at)
    at += 4
    for (; left > 0; left--) {
      const name = readSized().toString()
      headers[name] = [...(headers[name] ?? []), readSized()]
    }
    yield { partition, timestamp, key, value, headers }
  }
}

async function answer(order) {
  try {
    return await ORDERS[order.order](order)
  } catch (error) {
    return { kind: error.name, error: error.message }
  }
}

async function main() {
  await zstd.init()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + '\n')
  }
}

main()
