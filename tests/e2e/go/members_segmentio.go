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
	for ctx.Err() == nil {
		records, err := readSome(ctx, reader)
		if err != nil && !errors.Is(err, kafka.ErrGenerationEnded) && !errors.Is(err, context.DeadlineExceeded) {
			fmt.Fprintf(os.Stderr, "%d: partition %d: %v\n", member.member, at.ID, err)
		}
		if len(records) > 0 {
			next := records[len(records)-1][1] + 1
			member.read(records)
			member.commitFailed(generation.CommitOffsets(map[string]map[int]int64{by.topic: {at.ID: next}}))
		}
	}
}

// readSome reads until a moment brings nothing more, for the library's commits are slow.
func readSome(ctx context.Context, reader *kafka.Reader) ([][2]int64, error) {
	var records [][2]int64
	for len(records) < 50 {
		moment, cancel := context.WithTimeout(ctx, shortBackoff/2)
		message, err := reader.ReadMessage(moment)
		cancel()
		if err != nil {
			return records, err
		}
		records = append(records, [2]int64{int64(message.Partition), message.Offset})
	}
	return records, nil
}
