package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentioMember uses kafka-go's ConsumerGroup, which hands out one generation after the other. There are
// no callbacks; assigned is what a generation begins with, and revoked when all that reads in it has ended,
// which is what the library waits for before it joins again.
func segmentioMember(ctx context.Context, by membership, member *voice) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:      by.group,
		Brokers: []string{by.bootstrap},
		Topics:  []string{by.topic},
		// Any broken connection ends the generation, and a member that cannot reach a broker then forgets
		// its id and joins as another: its old self has to time out before the group goes on.
		SessionTimeout:    3 * time.Second,
		RebalanceTimeout:  3 * time.Second,
		HeartbeatInterval: heartbeat,
		JoinGroupBackoff:  shortBackoff,
		StartOffset:       kafka.FirstOffset,
		GroupBalancers:    []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
	})
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		generation, err := group.Next(ctx)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%d: next: %v\n", member.member, err)
			continue
		}
		consumeGeneration(generation, by, member)
	}
	return group.Close()
}

func consumeGeneration(generation *kafka.Generation, by membership, member *voice) {
	assignments := generation.Assignments[by.topic]
	var partitions []int32
	for _, one := range assignments {
		partitions = append(partitions, int32(one.ID))
	}
	member.assigned(partitions)
	generation.Start(func(ctx context.Context) {
		var reading sync.WaitGroup
		for _, one := range assignments {
			reading.Add(1)
			go func() {
				defer reading.Done()
				consumePartition(ctx, generation, one, by, member)
			}()
		}
		<-ctx.Done()
		reading.Wait()
		member.revoked(partitions)
	})
}

func consumePartition(
	ctx context.Context, generation *kafka.Generation, at kafka.PartitionAssignment, by membership, member *voice,
) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        []string{by.bootstrap},
		Topic:          by.topic,
		Partition:      at.ID,
		MaxWait:        shortBackoff,
		ReadBackoffMin: shortBackoff,
	})
	defer reader.Close()
	if err := reader.SetOffset(at.Offset); err != nil {
		member.failed(err)
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if errors.Is(err, kafka.ErrGenerationEnded) || ctx.Err() != nil {
			return
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%d: partition %d: %v\n", member.member, at.ID, err)
			continue
		}
		member.read([][2]int64{{int64(at.ID), message.Offset}})
		member.commitFailed(generation.CommitOffsets(map[string]map[int]int64{by.topic: {at.ID: message.Offset + 1}}))
	}
}
