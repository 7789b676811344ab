package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// franz is github.com/twmb/franz-go, with its kadm for all that is not a record.
type franz struct {
	seed    kgo.Opt
	control *kadm.Client
}

func connectFranz(given order) (*franz, error) {
	seed := kgo.SeedBrokers(given.Bootstrap)
	client, err := kgo.NewClient(seed)
	if err != nil {
		return nil, err
	}
	return &franz{seed, kadm.NewClient(client)}, nil
}

func (f *franz) close() {
	f.control.Close()
}

func (f *franz) create(ctx context.Context, topic string, partitions int32) error {
	_, err := f.control.CreateTopic(ctx, partitions, 1, nil, topic)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("%w: %w", errTopicExists, err)
	}
	return err
}

func (f *franz) partitionCount(ctx context.Context, topic string) (int, error) {
	found, err := f.control.ListTopics(ctx, topic)
	return len(found[topic].Partitions), errors.Join(err, found[topic].Err)
}

func (f *franz) produce(ctx context.Context, by order, records []record) ([]int64, error) {
	options := []kgo.Opt{
		f.seed,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(franzCodecs[by.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !by.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	sent := make([]*kgo.Record, len(records))
	failures := kgo.AbortingFirstErrPromise(producer)
	for index, one := range records {
		sent[index] = toFranz(by.Topic, one)
		producer.Produce(ctx, sent[index], failures.Promise())
	}
	if err := producer.Flush(ctx); err != nil {
		return nil, err
	}
	if err := failures.Err(); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(records))
	for index, one := range sent {
		offsets[index] = one.Offset
	}
	return offsets, nil
}

func toFranz(topic string, one record) *kgo.Record {
	headers := make([]kgo.RecordHeader, len(one.headers))
	for index, each := range one.headers {
		headers[index] = kgo.RecordHeader{Key: each.name, Value: each.value}
	}
	return &kgo.Record{
		Topic:     topic,
		Partition: one.partition,
		Timestamp: time.UnixMilli(one.timestampMs),
		Key:       one.key,
		Value:     one.value,
		Headers:   headers,
	}
}

func (f *franz) position(ctx context.Context, by order) (reader, error) {
	starts := make(map[int32]kgo.Offset)
	for _, partition := range by.Partitions {
		start, err := f.start(ctx, by, partition)
		if err != nil {
			return nil, err
		}
		starts[partition] = start
	}
	consumer, err := kgo.NewClient(
		f.seed,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{by.Topic: starts}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return nil, err
	}
	return &franzReader{consumer: consumer}, nil
}

// start asks for the offset now: the client itself would resolve AtEnd and AfterMilli some time later.
func (f *franz) start(ctx context.Context, by order, partition int32) (kgo.Offset, error) {
	var found kadm.ListedOffsets
	var err error
	switch by.From {
	case "earliest":
		return kgo.NewOffset().AtStart(), nil
	case "offset":
		return kgo.NewOffset().At(by.At), nil
	case "latest":
		found, err = f.control.ListEndOffsets(ctx, by.Topic)
	case "timestamp":
		found, err = f.control.ListOffsetsAfterMilli(ctx, by.At, by.Topic)
	default:
		err = fmt.Errorf("unknown start %q", by.From)
	}
	if err != nil {
		return kgo.Offset{}, err
	}
	offset := found[by.Topic][partition]
	return kgo.NewOffset().At(offset.Offset), offset.Err
}

func (f *franz) end(ctx context.Context, topic string, partition int32) (int64, error) {
	found, err := f.control.ListEndOffsets(ctx, topic)
	offset := found[topic][partition]
	return offset.Offset, errors.Join(err, offset.Err)
}

type franzReader struct {
	consumer *kgo.Client
	polled   []*kgo.Record
}

func (r *franzReader) next(ctx context.Context) (record, error) {
	for len(r.polled) == 0 {
		fetches := r.consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return record{}, err
		}
		r.polled = fetches.Records()
	}
	one := r.polled[0]
	r.polled = r.polled[1:]
	headers := make([]header, len(one.Headers))
	for index, each := range one.Headers {
		headers[index] = header{each.Key, each.Value}
	}
	return record{
		partition:     one.Partition,
		offset:        one.Offset,
		timestampType: one.Attrs.TimestampType(),
		timestampMs:   one.Timestamp.UnixMilli(),
		key:           one.Key,
		value:         one.Value,
		headers:       headers,
	}, nil
}

func (r *franzReader) close() {
	r.consumer.Close()
}
