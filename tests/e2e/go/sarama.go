package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// ibm is github.com/IBM/sarama. Its calls take no context; they give up by its own timeouts.
type ibm struct {
	bootstrap []string
	version   sarama.KafkaVersion
	client    sarama.Client
}

// saramaConfig is for the newest API versions that a broker of this version has.
func saramaConfig(version sarama.KafkaVersion) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = version
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	return config
}

func connectSarama(given order, version sarama.KafkaVersion) (*ibm, error) {
	bootstrap := []string{given.Bootstrap}
	client, err := sarama.NewClient(bootstrap, saramaConfig(version))
	if err != nil {
		return nil, err
	}
	return &ibm{bootstrap, version, client}, nil
}

func (s *ibm) close() {
	_ = s.client.Close()
}

func (s *ibm) create(_ context.Context, topic string, partitions int32) error {
	// Closed with the client.
	admin, err := sarama.NewClusterAdminFromClient(s.client)
	if err != nil {
		return err
	}
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return fmt.Errorf("%w: %w", errTopicExists, err)
	}
	return err
}

func (s *ibm) partitionCount(_ context.Context, topic string) (int, error) {
	partitions, err := s.client.Partitions(topic)
	return len(partitions), err
}

func (s *ibm) produce(ctx context.Context, by order, records []record) ([]int64, error) {
	config := saramaConfig(s.version)
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = saramaCodecs[by.Codec]
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Producer.Return.Successes = true
	if patient {
		config.Producer.Retry.Max = 100
	}
	if by.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewAsyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for index, one := range records {
			producer.Input() <- toSarama(by.Topic, index, one)
		}
	}()
	offsets := make([]int64, len(records))
	for range records {
		select {
		case message := <-producer.Successes():
			offsets[message.Metadata.(int)] = message.Offset
		case failure := <-producer.Errors():
			return nil, failure
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	// Only here: closing earlier would take the input from the goroutine above.
	return offsets, producer.Close()
}

func toSarama(topic string, index int, one record) *sarama.ProducerMessage {
	headers := make([]sarama.RecordHeader, len(one.headers))
	for number, each := range one.headers {
		headers[number] = sarama.RecordHeader{Key: []byte(each.name), Value: each.value}
	}
	message := &sarama.ProducerMessage{
		Topic:     topic,
		Partition: one.partition,
		Timestamp: time.UnixMilli(one.timestampMs),
		Headers:   headers,
		Metadata:  index,
	}
	// An encoder of nothing is an empty key; only no encoder is a null.
	if one.key != nil {
		message.Key = sarama.ByteEncoder(one.key)
	}
	if one.value != nil {
		message.Value = sarama.ByteEncoder(one.value)
	}
	return message
}

func (s *ibm) position(_ context.Context, by order) (reader, error) {
	consumer, err := sarama.NewConsumerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	positioned := newSaramaReader(consumer)
	for _, partition := range by.Partitions {
		start, err := s.start(by, partition)
		if err != nil {
			positioned.close()
			return nil, err
		}
		// Resolves oldest and newest before it returns.
		read, err := consumer.ConsumePartition(by.Topic, partition, start)
		if err != nil {
			positioned.close()
			return nil, err
		}
		positioned.add(read)
	}
	return positioned, nil
}

func (s *ibm) start(by order, partition int32) (int64, error) {
	switch by.From {
	case "earliest":
		return sarama.OffsetOldest, nil
	case "latest":
		return sarama.OffsetNewest, nil
	case "offset":
		return by.At, nil
	case "timestamp":
		// -1 when there is nothing as late, which is OffsetNewest.
		return s.client.GetOffset(by.Topic, partition, by.At)
	}
	return 0, fmt.Errorf("unknown start %q", by.From)
}

func (s *ibm) end(_ context.Context, topic string, partition int32) (int64, error) {
	return s.client.GetOffset(topic, partition, sarama.OffsetNewest)
}

type saramaReader struct {
	consumer sarama.Consumer
	reads    []sarama.PartitionConsumer
	messages chan *sarama.ConsumerMessage
	failures chan error
	closed   chan struct{}
}

func newSaramaReader(consumer sarama.Consumer) *saramaReader {
	return &saramaReader{
		consumer: consumer,
		messages: make(chan *sarama.ConsumerMessage),
		failures: make(chan error),
		closed:   make(chan struct{}),
	}
}

func (r *saramaReader) add(read sarama.PartitionConsumer) {
	r.reads = append(r.reads, read)
	go func() {
		for {
			select {
			case message, open := <-read.Messages():
				if !open || !handedOn(r.messages, message, r.closed) {
					return
				}
			case failure := <-read.Errors():
				if !handedOn(r.failures, error(failure), r.closed) {
					return
				}
			case <-r.closed:
				return
			}
		}
	}()
}

// handedOn is false when the reader was closed before anybody took it.
func handedOn[T any](to chan<- T, value T, closed <-chan struct{}) bool {
	select {
	case to <- value:
		return true
	case <-closed:
		return false
	}
}

func (r *saramaReader) next(ctx context.Context) (record, error) {
	select {
	case message := <-r.messages:
		return fromSarama(message), nil
	case failure := <-r.failures:
		return record{}, failure
	case <-ctx.Done():
		return record{}, ctx.Err()
	}
}

// fromSarama leaves the timestamp type 0: the library takes the batch's time for LogAppendTime, but says
// nothing about it.
func fromSarama(message *sarama.ConsumerMessage) record {
	headers := make([]header, len(message.Headers))
	for index, each := range message.Headers {
		headers[index] = header{string(each.Key), each.Value}
	}
	return record{
		partition:   message.Partition,
		offset:      message.Offset,
		timestampMs: message.Timestamp.UnixMilli(),
		key:         message.Key,
		value:       message.Value,
		headers:     headers,
	}
}

func (r *saramaReader) close() {
	close(r.closed)
	for _, read := range r.reads {
		read.AsyncClose()
	}
	for _, read := range r.reads {
		_ = read.Close()
	}
	_ = r.consumer.Close()
}
