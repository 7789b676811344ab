package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

var segmentioCodecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

// segmentio is github.com/segmentio/kafka-go.
type segmentio struct {
	bootstrap string
	// One of its own, so that no connection or metadata outlives the order.
	transport *kafka.Transport
	client    *kafka.Client
}

func connectSegmentio(given order) *segmentio {
	transport := &kafka.Transport{}
	client := &kafka.Client{Addr: kafka.TCP(given.Bootstrap), Transport: transport}
	return &segmentio{given.Bootstrap, transport, client}
}

func (s *segmentio) close() {
	s.transport.CloseIdleConnections()
}

func (s *segmentio) create(ctx context.Context, topic string, partitions int32) error {
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: 1}
	done, err := s.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return err
	}
	if errors.Is(done.Errors[topic], kafka.TopicAlreadyExists) {
		return fmt.Errorf("%w: %w", errTopicExists, done.Errors[topic])
	}
	return done.Errors[topic]
}

func (s *segmentio) partitionCount(ctx context.Context, topic string) (int, error) {
	connection, err := kafka.DialContext(ctx, "tcp", s.bootstrap)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	partitions, err := connection.ReadPartitions(topic)
	return len(partitions), err
}

func (s *segmentio) produce(ctx context.Context, by order, records []record) ([]int64, error) {
	if by.Idempotent {
		return nil, errors.New("kafka-go has no idempotent producer")
	}
	offsets := make([]int64, len(records))
	var acked sync.Mutex
	writer := &kafka.Writer{
		Addr:         s.client.Addr,
		Topic:        by.Topic,
		Transport:    s.transport,
		Balancer:     kafka.BalancerFunc(asRecordSays),
		RequiredAcks: kafka.RequireAll,
		Compression:  segmentioCodecs[by.Codec],
		BatchTimeout: 20 * time.Millisecond,
		Completion: func(messages []kafka.Message, err error) {
			acked.Lock()
			defer acked.Unlock()
			for _, message := range messages {
				offsets[message.WriterData.(sent).index] = message.Offset
			}
		},
	}
	messages := make([]kafka.Message, len(records))
	for index, one := range records {
		messages[index] = toSegmentio(index, one)
	}
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return nil, err
	}
	return offsets, writer.Close()
}

// sent travels with a message through the writer.
type sent struct {
	index     int
	partition int32
}

func asRecordSays(message kafka.Message, _ ...int) int {
	return int(message.WriterData.(sent).partition)
}

func toSegmentio(index int, one record) kafka.Message {
	headers := make([]kafka.Header, len(one.headers))
	for number, each := range one.headers {
		headers[number] = kafka.Header{Key: each.name, Value: each.value}
	}
	return kafka.Message{
		Time:       time.UnixMilli(one.timestampMs),
		Key:        one.key,
		Value:      one.value,
		Headers:    headers,
		WriterData: sent{index, one.partition},
	}
}

func (s *segmentio) position(ctx context.Context, by order) (reader, error) {
	positioned := &segmentioReader{messages: make(chan kafka.Message), failures: make(chan error)}
	reading, cancel := context.WithCancel(context.Background())
	positioned.cancel = cancel
	for _, partition := range by.Partitions {
		read := kafka.NewReader(kafka.ReaderConfig{
			Brokers:   []string{s.bootstrap},
			Topic:     by.Topic,
			Partition: int(partition),
			MaxWait:   100 * time.Millisecond,
			// Otherwise it would wait until there is something at the offset.
			OffsetOutOfRangeError: true,
		})
		positioned.reads = append(positioned.reads, read)
		start, err := s.start(ctx, by, partition)
		if err == nil {
			err = read.SetOffset(start)
		}
		if err != nil {
			positioned.close()
			return nil, err
		}
	}
	for _, read := range positioned.reads {
		go positioned.forward(reading, read)
	}
	return positioned, nil
}

// start asks for the end now: the reader itself would resolve LastOffset at its first read.
func (s *segmentio) start(ctx context.Context, by order, partition int32) (int64, error) {
	switch by.From {
	case "earliest":
		return kafka.FirstOffset, nil
	case "offset":
		return by.At, nil
	case "latest":
		return s.end(ctx, by.Topic, partition)
	case "timestamp":
		found, err := s.ask(ctx, by.Topic, partition, func(leader *kafka.Conn) (int64, error) {
			return leader.ReadOffset(time.UnixMilli(by.At))
		})
		if err == nil && found == kafka.LastOffset { // what is given when nothing is as late
			return s.end(ctx, by.Topic, partition)
		}
		return found, err
	}
	return 0, fmt.Errorf("unknown start %q", by.From)
}

func (s *segmentio) end(ctx context.Context, topic string, partition int32) (int64, error) {
	return s.ask(ctx, topic, partition, (*kafka.Conn).ReadLastOffset)
}

func (s *segmentio) ask(
	ctx context.Context, topic string, partition int32, question func(*kafka.Conn) (int64, error),
) (int64, error) {
	leader, err := kafka.DialLeader(ctx, "tcp", s.bootstrap, topic, int(partition))
	if err != nil {
		return 0, err
	}
	defer leader.Close()
	return question(leader)
}

func (s *segmentio) admin(context.Context, string) (calls, error) {
	return nil, errors.New("not asked of kafka-go")
}

type segmentioReader struct {
	reads    []*kafka.Reader
	messages chan kafka.Message
	failures chan error
	cancel   context.CancelFunc
}

func (r *segmentioReader) forward(reading context.Context, read *kafka.Reader) {
	for {
		message, err := read.ReadMessage(reading)
		if err != nil {
			handedOn(r.failures, err, reading.Done())
			return
		}
		if !handedOn(r.messages, message, reading.Done()) {
			return
		}
	}
}

func (r *segmentioReader) next(ctx context.Context) (record, error) {
	select {
	case message := <-r.messages:
		return fromSegmentio(message), nil
	case failure := <-r.failures:
		return record{}, failure
	case <-ctx.Done():
		return record{}, ctx.Err()
	}
}

// fromSegmentio leaves the timestamp type 0, since the library does not tell it. An empty key, value or
// header value comes as nil: it does not tell that from a null either.
func fromSegmentio(message kafka.Message) record {
	headers := make([]header, len(message.Headers))
	for index, each := range message.Headers {
		headers[index] = header{each.Key, each.Value}
	}
	return record{
		partition:   int32(message.Partition),
		offset:      message.Offset,
		timestampMs: message.Time.UnixMilli(),
		key:         message.Key,
		value:       message.Value,
		headers:     headers,
	}
}

func (r *segmentioReader) close() {
	r.cancel()
	for _, read := range r.reads {
		_ = read.Close()
	}
}
