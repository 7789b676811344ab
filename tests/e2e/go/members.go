package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	heartbeat    = time.Second
	shortBackoff = 100 * time.Millisecond
	// Longer than any restart of a broker in these tests.
	manyRetries = 100
)

// membership is what tests/e2e/members/__init__.py calls the arguments of a program of members.
type membership struct {
	library, bootstrap, group, topic string
	members                          int
	cooperative                      bool
	instancePrefix                   string
}

func membershipFrom(arguments []string) (membership, error) {
	if len(arguments) != 7 {
		return membership{}, fmt.Errorf("7 arguments wanted, given are %d", len(arguments))
	}
	members, err := strconv.Atoi(arguments[4])
	return membership{
		library:        arguments[0],
		bootstrap:      arguments[1],
		group:          arguments[2],
		topic:          arguments[3],
		members:        members,
		cooperative:    arguments[5] == "cooperative",
		instancePrefix: arguments[6],
	}, err
}

// instance is empty for a dynamic member.
func (m membership) instance(member int) string {
	if m.instancePrefix == "" {
		return ""
	}
	return fmt.Sprintf("%s-%d", m.instancePrefix, member)
}

// memberOf is what each library has; it is a member until the context ends, and then leaves.
var memberOf = map[string]func(ctx context.Context, by membership, member *voice) error{
	"sarama":   saramaMember,
	"kafka-go": segmentioMember,
	"franz-go": franzMember,
}

// runMembers runs all members, each in a goroutine of its own, until stdin ends.
func runMembers(arguments []string) error {
	by, err := membershipFrom(arguments)
	if err != nil {
		return err
	}
	member, known := memberOf[by.library]
	if !known {
		return fmt.Errorf("unknown client %q", by.library)
	}
	ctx, leave := context.WithCancel(context.Background())
	var running sync.WaitGroup
	said := &stage{output: bufio.NewWriter(os.Stdout)}
	for number := range by.members {
		running.Add(1)
		go func() {
			defer running.Done()
			its := &voice{said, number}
			if err := member(ctx, by, its); err != nil && ctx.Err() == nil {
				its.failed(err)
			}
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	leave()
	running.Wait()
	return err
}

// stage is what all members of the process speak from, one at a time.
type stage struct {
	turn   sync.Mutex
	output *bufio.Writer
}

// voice says the events of one member.
type voice struct {
	*stage
	member int
}

type event struct {
	At         int64      `json:"at"`
	Member     int        `json:"member"`
	Event      string     `json:"event"`
	Partitions []int32    `json:"partitions,omitempty"`
	Records    [][2]int64 `json:"records,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

func (v *voice) say(told event) {
	v.turn.Lock()
	defer v.turn.Unlock()
	told.At, told.Member = monotonicNs(), v.member
	if err := json.NewEncoder(v.output).Encode(told); err != nil {
		panic(err)
	}
	if err := v.output.Flush(); err != nil {
		panic(err)
	}
}

func (v *voice) assigned(partitions []int32) {
	v.say(event{Event: "assigned", Partitions: slices.Sorted(slices.Values(partitions))})
}

func (v *voice) revoked(partitions []int32) {
	v.say(event{Event: "revoked", Partitions: slices.Sorted(slices.Values(partitions))})
}

func (v *voice) lost(partitions []int32) {
	v.say(event{Event: "lost", Partitions: slices.Sorted(slices.Values(partitions))})
}

// read takes partitions and offsets.
func (v *voice) read(records [][2]int64) {
	v.say(event{Event: "read", Records: records})
}

func (v *voice) failed(err error) {
	v.say(event{Event: "failed", Reason: err.Error()})
}

// commitFailed tells what a commit was answered: a broker's word that this is no member, or none of this
// generation, is a refusal. When a broker could not be reached, or a rebalance came first, the same is
// committed with the next records.
func (v *voice) commitFailed(err error) {
	answered := brokerError(err)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case answered == nil:
		fmt.Fprintf(os.Stderr, "%d: commit: %v\n", v.member, err)
	case slices.Contains(refusals, answered.Message):
		v.say(event{Event: "refused", Reason: answered.Message})
	case !answered.Retriable && answered.Message != "REBALANCE_IN_PROGRESS":
		v.failed(fmt.Errorf("commit: %w", err))
	}
}

var refusals = []string{"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"}

// monotonicNs is on the clock that the other programs of members use, so that their events can be compared.
func monotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}
