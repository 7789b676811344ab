'use strict'
// Transactions of kafkajs; tests/e2e/transactors/__init__.py says what goes in and out.
const readline = require('node:readline')
const kafkajs = require('kafkajs')

const END = 'end'
const producers = new Map()

function connected(order) {
  return new kafkajs.Kafka({
    brokers: [order.bootstrap],
    logLevel: kafkajs.logLevel.ERROR,
    logCreator: () => ({ namespace, label, log }) => {
      process.stderr.write(`${label} ${namespace} ${log.message} ${log.error ?? ''}\n`)
    },
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 },
  })
}

// The library initializes the transactional id when its first transaction begins: so one begins here, and
// the order `begin` takes it.
async function initialized(order, transactionTimeout) {
  const producer = connected(order).producer({
    transactionalId: order.id,
    transactionTimeout,
    maxInFlightRequests: 1,
    idempotent: true,
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
    allowAutoTopicCreation: false,
  })
  await producer.connect()
  return { producer, begun: await producer.transaction(), open: null }
}

async function init(order) {
  producers.set(order.producer, await initialized(order, order.timeout_ms))
}

async function begin(order) {
  const held = producers.get(order.producer)
  held.open = held.begun ?? (await held.producer.transaction())
  held.begun = null
}

async function send(order) {
  const messages = order.values.map((value) => ({ partition: order.partition, value }))
  await producers.get(order.producer).open.send({ topic: order.topic, acks: -1, messages })
}

async function end(order) {
  const { open } = producers.get(order.producer)
  await (order.commit ? open.commit() : open.abort())
}

// It reads only as a member of a group.
async function read(order) {
  const consumer = connected(order).consumer({
    groupId: `reader-${process.pid}-${process.hrtime.bigint()}`,
    maxWaitTimeInMs: 100,
    readUncommitted: !order.committed,
    allowAutoTopicCreation: false,
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [order.topic], fromBeginning: true })
  const values = Array.from({ length: order.partitions }, () => [])
  const isOver = (ofPartition) => ofPartition.at(-1) === END
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    const eachMessage = async ({ partition, message }) => {
      if (!isOver(values[partition])) {
        values[partition].push(message.value.toString())
      }
      if (values.every(isOver)) {
        resolve()
      }
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  return { values }
}

async function copy(order) {
  const { producer, begun } = await initialized(order, 60000)
  await begun.abort()
  const consumer = connected(order).consumer({
    groupId: order.group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    allowAutoTopicCreation: false,
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [order.source], fromBeginning: true })
  let number = 0
  let ends = 0
  let onEnd
  // One after the other: a producer has one transaction at a time.
  const eachBatch = async ({ batch, resolveOffset, isStale }) => {
    for (let at = 0; at < batch.messages.length && !isStale(); at += order.batch) {
      number += 1
      const toAbort = order.abort_every > 0 && number % order.abort_every === 0
      const taken = batch.messages.slice(at, at + order.batch)
      await transfer(producer, order, batch.partition, taken, toAbort)
      if (toAbort) {
        consumer.seek({ topic: order.source, partition: batch.partition, offset: taken[0].offset })
        return
      }
      resolveOffset(taken.at(-1).offset)
      ends += taken.filter(({ value }) => value.toString() === END).length
    }
    if (ends === order.partitions) {
      onEnd()
    }
  }
  await new Promise((resolve, reject) => {
    onEnd = resolve
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error))
    const settings = { autoCommit: false, eachBatchAutoResolve: false, partitionsConsumedConcurrently: 1 }
    consumer.run({ ...settings, eachBatch }).catch(reject)
  })
  await consumer.disconnect()
  await producer.disconnect()
}

async function transfer(producer, order, partition, taken, toAbort) {
  const transaction = await producer.transaction()
  try {
    const messages = taken.map(({ value }) => ({ partition, value }))
    await transaction.send({ topic: order.target, acks: -1, messages })
    await new Promise((resolve) => setTimeout(resolve, order.pause_ms))
    const offset = (BigInt(taken.at(-1).offset) + 1n).toString()
    const topics = [{ topic: order.source, partitions: [{ partition, offset }] }]
    await transaction.sendOffsets({ consumerGroupId: order.group, topics })
  } catch (error) {
    await transaction.abort()
    throw error
  }
  await (toAbort ? transaction.abort() : transaction.commit())
}

const ORDERS = { init, begin, send, end, read, copy }

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line)
    let result
    try {
      result = (await ORDERS[order.order](order)) ?? {}
    } catch (error) {
      process.stderr.write(`${error.stack}\n`)
      result = { kind: error.type ?? error.name, error: error.message }
    }
    process.stdout.write(`${JSON.stringify(result)}\n`)
  }
  process.exit(0)
}

main()
