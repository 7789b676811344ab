package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func saramaMember(ctx context.Context, by membership, member *voice) error {
	config := saramaConfig(sarama.MaxVersion)
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 20 * time.Second
	config.Consumer.Group.Heartbeat.Interval = heartbeat
	config.Consumer.Group.InstanceId = by.instance(member.member)
	config.Consumer.Group.Rebalance.Retry.Max = manyRetries
	config.Consumer.Group.Rebalance.Retry.Backoff = shortBackoff
	// Heartbeats that reach no broker count against this; when it is used up the member joins anew. They are
	// repeated without a pause while the connection is refused, until the broker is looked up again: hundreds
	// a second.
	config.Metadata.Retry.Max = math.MaxInt32
	config.Metadata.Retry.Backoff = shortBackoff
	config.Consumer.Retry.Backoff = shortBackoff
	group, err := sarama.NewConsumerGroup([]string{by.bootstrap}, by.group, config)
	if err != nil {
		return err
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for err := range group.Errors() {
			member.commitFailed(err)
		}
	}()
	for ctx.Err() == nil {
		if err = group.Consume(ctx, []string{by.topic}, &saramaHandler{member}); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "%d: consume: %v\n", member.member, err)
			time.Sleep(shortBackoff)
		}
	}
	err = group.Close()
	<-told
	return err
}

// saramaHandler is told of a session, which is what one generation is for its member.
type saramaHandler struct {
	*voice
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.assigned(claimed(session))
	return nil
}

// Cleanup is called when every ConsumeClaim has returned, and before the member joins again.
func (h *saramaHandler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.revoked(claimed(session))
	return nil
}

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		records := [][2]int64{{int64(message.Partition), message.Offset}}
		session.MarkMessage(message, "")
		for range len(claim.Messages()) {
			if message = <-claim.Messages(); message != nil {
				records = append(records, [2]int64{int64(message.Partition), message.Offset})
				session.MarkMessage(message, "")
			}
		}
		h.read(records)
		// What cannot be committed stays marked, and goes with the next commit.
		session.Commit()
	}
	return nil
}

func claimed(session sarama.ConsumerGroupSession) []int32 {
	var partitions []int32
	for _, ofTopic := range session.Claims() {
		partitions = append(partitions, ofTopic...)
	}
	return partitions
}
