package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func franzMember(ctx context.Context, by membership, member *voice) error {
	balancer := kgo.RangeBalancer()
	if by.cooperative {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(by.bootstrap),
		kgo.ConsumerGroup(by.group),
		kgo.ConsumeTopics(by.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancer),
		kgo.SessionTimeout(20 * time.Second),
		kgo.HeartbeatInterval(heartbeat),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(shortBackoff),
		kgo.RetryBackoffFn(func(int) time.Duration { return shortBackoff }),
		kgo.RequestRetries(manyRetries),
		// A rebalance waits until what was polled is committed.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(ofFranz(by.topic, member.assigned)),
		kgo.OnPartitionsRevoked(ofFranz(by.topic, member.revoked)),
		kgo.OnPartitionsLost(ofFranz(by.topic, member.lost)),
	}
	if instance := by.instance(member.member); instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for ctx.Err() == nil {
		polled := client.PollRecords(ctx, 50)
		polled.EachError(func(_ string, partition int32, err error) { pollFailed(member, partition, err) })
		if records := polled.Records(); len(records) > 0 {
			member.read(placesOf(records))
			// Not bound to ctx: what was read is committed, also at the end.
			member.commitFailed(client.CommitRecords(context.Background(), records...))
		}
		client.AllowRebalance()
	}
	return nil
}

func ofFranz(topic string, tell func([]int32)) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
		tell(partitions[topic])
	}
}

func placesOf(records []*kgo.Record) [][2]int64 {
	places := make([][2]int64, len(records))
	for index, one := range records {
		places[index] = [2]int64{int64(one.Partition), one.Offset}
	}
	return places
}

// pollFailed hears of a group's errors too, before the library joins anew.
func pollFailed(member *voice, partition int32, err error) {
	answered := brokerError(err)
	var ofGroup *kgo.ErrGroupSession
	if answered != nil && !answered.Retriable && !errors.As(err, &ofGroup) {
		member.failed(fmt.Errorf("partition %d: %w", partition, err))
	} else if !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%d: partition %d: %v\n", member.member, partition, err)
	}
}
