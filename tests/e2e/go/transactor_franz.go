package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzProducer has a client without a group.
type franzProducer struct {
	client *kgo.Client
}

type franzTransactor struct {
	producers map[string]*franzProducer
}

func (f *franzTransactor) init(ctx context.Context, by transaction) error {
	// The library leaves it to its caller to wait until the transaction before has ended.
	client, err := patiently(ctx, func() (*kgo.Client, error) { return initFranz(ctx, by) })
	f.producers[by.Producer] = &franzProducer{client}
	return err
}

// initFranz asks for the producer's id: the library itself does so with the first record.
func initFranz(ctx context.Context, by transaction) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(by.Bootstrap),
		kgo.TransactionalID(by.ID),
		kgo.TransactionTimeout(time.Duration(by.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return shortBackoff }),
	)
	if err != nil {
		return nil, err
	}
	if _, _, err = client.ProducerID(ctx); err != nil {
		client.Close()
	}
	return client, err
}

func (f *franzTransactor) begin(by transaction) error {
	return f.producers[by.Producer].client.BeginTransaction()
}

func (f *franzTransactor) send(ctx context.Context, by transaction) error {
	records := make([]*kgo.Record, len(by.Values))
	for index, value := range by.Values {
		records[index] = &kgo.Record{Topic: by.Topic, Partition: by.Partition, Value: []byte(value)}
	}
	return f.producers[by.Producer].client.ProduceSync(ctx, records...).FirstErr()
}

func (f *franzTransactor) end(ctx context.Context, by transaction) error {
	return f.producers[by.Producer].client.EndTransaction(ctx, kgo.TransactionEndTry(by.Commit))
}

func (f *franzTransactor) read(ctx context.Context, by transaction, add func(int32, []byte) bool) error {
	starts := make(map[int32]kgo.Offset)
	for partition := range by.Partitions {
		starts[int32(partition)] = kgo.NewOffset().AtStart()
	}
	isolation := kgo.ReadUncommitted()
	if by.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(by.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{by.Topic: starts}),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxWait(shortBackoff),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetched := client.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return err
		}
		more := true
		fetched.EachRecord(func(one *kgo.Record) { more = add(one.Partition, one.Value) })
		if !more {
			return nil
		}
	}
}

func (f *franzTransactor) copy(by transaction, committed func([]byte) bool) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(by.Bootstrap),
		kgo.TransactionalID(by.ID),
		kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(by.Group),
		kgo.ConsumeTopics(by.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(heartbeat/2),
		kgo.FetchMaxWait(shortBackoff),
		kgo.RetryBackoffFn(func(int) time.Duration { return shortBackoff }),
		kgo.RequestRetries(manyRetries),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	// The library would do so with its first record, which it does not get before the transaction that a killed
	// copier has left open has timed out: its offsets are not stable.
	if _, _, err := session.Client().ProducerID(context.Background()); err != nil {
		return err
	}
	for number := 1; ; {
		polled := session.PollRecords(context.Background(), by.Batch)
		if polled.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		polled.EachRecord(func(one *kgo.Record) {
			copied := &kgo.Record{Topic: by.Target, Partition: one.Partition, Value: one.Value}
			session.Produce(context.Background(), copied, failed.Promise())
		})
		if err := session.Client().Flush(context.Background()); err != nil {
			return err
		}
		by.pause()
		commit := kgo.TransactionEndTry(failed.Err() == nil && !by.isAborted(number))
		isCommitted, err := session.End(context.Background(), commit)
		if err != nil {
			return errors.Join(err, failed.Err())
		}
		more := true
		polled.EachRecord(func(one *kgo.Record) { more = !isCommitted || committed(one.Value) })
		if !more {
			return nil
		}
		number++
	}
}
