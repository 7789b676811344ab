package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/IBM/sarama"
)

type saramaProducer struct {
	sarama.SyncProducer
}

type saramaTransactor struct {
	producers map[string]*saramaProducer
}

func newSaramaProducer(by transaction, timeout time.Duration) (*saramaProducer, error) {
	config := saramaConfig(sarama.MaxVersion)
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = manyRetries
	config.Producer.Retry.Backoff = shortBackoff
	config.Producer.Transaction.ID = by.ID
	config.Producer.Transaction.Timeout = timeout
	config.Producer.Transaction.Retry.Max = manyRetries
	config.Producer.Transaction.Retry.Backoff = shortBackoff
	config.Metadata.Retry.Max = manyRetries
	config.Metadata.Retry.Backoff = shortBackoff
	made, err := sarama.NewSyncProducer([]string{by.Bootstrap}, config)
	return &saramaProducer{made}, err
}

func (s *saramaTransactor) init(ctx context.Context, by transaction) error {
	// The library leaves it to its caller to wait until the transaction before has ended.
	made, err := patiently(ctx, func() (*saramaProducer, error) {
		return newSaramaProducer(by, time.Duration(by.TimeoutMs)*time.Millisecond)
	})
	s.producers[by.Producer] = made
	return err
}

func (s *saramaTransactor) begin(by transaction) error {
	return s.producers[by.Producer].BeginTxn()
}

func (s *saramaTransactor) send(_ context.Context, by transaction) error {
	messages := make([]*sarama.ProducerMessage, len(by.Values))
	for index, value := range by.Values {
		messages[index] = saramaMessage(by.Topic, by.Partition, []byte(value))
	}
	return firstOf(s.producers[by.Producer].SendMessages(messages))
}

func saramaMessage(topic string, partition int32, value []byte) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.ByteEncoder(value)}
}

// firstOf is the first reason of an error that has one for each message.
func firstOf(err error) error {
	var each sarama.ProducerErrors
	if errors.As(err, &each) && len(each) > 0 {
		return each[0].Err
	}
	return err
}

func (s *saramaTransactor) end(_ context.Context, by transaction) error {
	if by.Commit {
		return s.producers[by.Producer].CommitTxn()
	}
	return s.producers[by.Producer].AbortTxn()
}

func (s *saramaTransactor) read(ctx context.Context, by transaction, add func(int32, []byte) bool) error {
	config := saramaConfig(sarama.MaxVersion)
	if by.Committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{by.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer func() { _ = consumer.Close() }()
	arrived := make(chan *sarama.ConsumerMessage)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for partition := range by.Partitions {
		reading, err := consumer.ConsumePartition(by.Topic, int32(partition), sarama.OffsetOldest)
		if err != nil {
			return err
		}
		defer reading.AsyncClose()
		go func() {
			for message := range reading.Messages() {
				select {
				case arrived <- message:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	for {
		select {
		case message := <-arrived:
			if !add(message.Partition, message.Value) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *saramaTransactor) copy(by transaction, committed func([]byte) bool) error {
	producer, err := newSaramaProducer(by, time.Minute)
	if err != nil {
		return err
	}
	config := saramaConfig(sarama.MaxVersion)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = heartbeat / 2
	config.Consumer.Group.Rebalance.Retry.Max = manyRetries
	config.Consumer.Group.Rebalance.Retry.Backoff = shortBackoff
	config.Metadata.Retry.Max = math.MaxInt32
	config.Metadata.Retry.Backoff = shortBackoff
	config.Consumer.Retry.Backoff = shortBackoff
	group, err := sarama.NewConsumerGroup([]string{by.Bootstrap}, by.Group, config)
	if err != nil {
		return err
	}
	go func() {
		for err := range group.Errors() {
			fmt.Fprintf(os.Stderr, "group: %v\n", err)
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	add := func(value []byte) {
		if !committed(value) {
			stop()
		}
	}
	copier := &saramaCopier{by: by, producer: producer, committed: add, turn: make(chan struct{}, 1)}
	for copier.fatal == nil && ctx.Err() == nil {
		// It returns after an aborted transaction too: then the group is read from what it has committed.
		if err := group.Consume(ctx, []string{by.Source}, copier); err != nil {
			fmt.Fprintf(os.Stderr, "consume: %v\n", err)
			time.Sleep(shortBackoff)
		}
	}
	return errors.Join(copier.fatal, group.Close())
}

// saramaCopier has one transaction at a time, of the partition whose turn it is.
type saramaCopier struct {
	by        transaction
	producer  *saramaProducer
	committed func([]byte)
	turn      chan struct{}
	number    int
	fatal     error
}

func (c *saramaCopier) Setup(sarama.ConsumerGroupSession) error {
	return nil
}

func (c *saramaCopier) Cleanup(sarama.ConsumerGroupSession) error {
	return nil
}

func (c *saramaCopier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open || !c.isCopied(session, c.batchFrom(message, claim)) {
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (c *saramaCopier) batchFrom(
	first *sarama.ConsumerMessage, claim sarama.ConsumerGroupClaim,
) []*sarama.ConsumerMessage {
	batch := []*sarama.ConsumerMessage{first}
	for len(batch) < c.by.Batch && len(claim.Messages()) > 0 {
		batch = append(batch, <-claim.Messages())
	}
	return batch
}

func (c *saramaCopier) isCopied(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) bool {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.fatal != nil || session.Context().Err() != nil {
		return false
	}
	c.number++
	err := c.transfer(batch)
	if err == nil && !c.by.isAborted(c.number) {
		if err = c.producer.CommitTxn(); err == nil {
			for _, message := range batch {
				c.committed(message.Value)
			}
			return true
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "transaction: %v\n", err)
	}
	if c.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		c.fatal = errors.Join(err, errors.New("the producer is in a fatal error"))
		return false
	}
	if err = c.producer.AbortTxn(); err != nil {
		c.fatal = err
	}
	return false
}

func (c *saramaCopier) transfer(batch []*sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	copied := make([]*sarama.ProducerMessage, len(batch))
	for index, message := range batch {
		copied[index] = saramaMessage(c.by.Target, message.Partition, message.Value)
	}
	if err := firstOf(c.producer.SendMessages(copied)); err != nil {
		return err
	}
	c.by.pause()
	return c.producer.AddMessageToTxn(batch[len(batch)-1], c.by.Group, nil)
}
