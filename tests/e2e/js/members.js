'use strict'
// Members of kafkajs; tests/e2e/members/__init__.py says what they are told and say. The library has no
// callbacks for partitions, only events: one says that the group rebalances, before it joins again, and one
// what it was given.
const kafkajs = require('kafkajs')

const [bootstrap, groupId, topic, members] = process.argv.slice(2)
const REFUSALS = ['UNKNOWN_MEMBER_ID', 'ILLEGAL_GENERATION', 'FENCED_INSTANCE_ID']

function say(member, event, fields) {
  const at = process.hrtime.bigint().toString()
  // By hand: as a JavaScript number the time would lose digits.
  const told = JSON.stringify({ member, event, ...fields })
  process.stdout.write(`{"at": ${at}, ${told.slice(1)}\n`)
}

class Member {
  constructor(number) {
    this.number = number
    this.partitions = []
    this.stopping = false
    const client = new kafkajs.Kafka({
      brokers: [bootstrap],
      logLevel: kafkajs.logLevel.ERROR,
      logCreator: () => ({ namespace, label, log }) => {
        process.stderr.write(`${number}: ${label} ${namespace} ${log.message}\n`)
      },
      retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 },
    })
    this.consumer = client.consumer({
      groupId,
      // Now and then it finds no broker to fetch from, gives up and joins as another, and its old self has to
      // time out before the group goes on.
      sessionTimeout: 3000,
      rebalanceTimeout: 3000,
      heartbeatInterval: 1000,
      maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false,
    })
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(REBALANCING, () => this.given('revoked', []))
    this.consumer.on(CRASH, ({ payload }) => {
      this.given('lost', [])
      if (!payload.restart) {
        say(number, 'failed', { reason: `crash: ${payload.error.message}` })
      }
    })
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      // No event says that it was put out: it joins as another.
      this.given('lost', payload.memberAssignment[topic] ?? [])
    })
  }

  // Tells what is gone and what is there.
  given(gone, partitions) {
    if (this.stopping) {
      return
    }
    if (this.partitions.length > 0) {
      say(this.number, gone, { partitions: this.partitions })
    }
    this.partitions = partitions
    if (partitions.length > 0) {
      say(this.number, 'assigned', { partitions })
    }
  }

  async start() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await this.consumer.run({ autoCommit: false, eachBatch: (payload) => this.work(payload) })
  }

  async work({ batch, resolveOffset, commitOffsetsIfNecessary }) {
    const { partition, messages } = batch
    say(this.number, 'read', { records: messages.map((one) => [partition, Number(one.offset)]) })
    const last = messages[messages.length - 1].offset
    resolveOffset(last)
    const offset = (BigInt(last) + 1n).toString()
    try {
      await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset }] }] })
    } catch (error) {
      if (REFUSALS.includes(error.type)) {
        say(this.number, 'refused', { reason: error.type })
      }
      throw error
    }
  }

  async stop() {
    // Said first: as soon as it has left, others may be given what was its.
    this.given('revoked', [])
    this.stopping = true
    await this.consumer.disconnect()
  }
}

async function main() {
  const all = Array.from({ length: Number(members) }, (_, number) => new Member(number))
  process.stdin.resume()
  const ended = new Promise((resolve) => process.stdin.once('end', resolve))
  await Promise.all(all.map((one) => one.start()))
  await ended
  await Promise.all(all.map((one) => one.stop()))
  process.exit(0)
}

main()
