package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errTopicExists is what every library's own TOPIC_ALREADY_EXISTS becomes.
var errTopicExists = errors.New("the topic exists")

// patient is whether a retriable error is waited out. Apache Kafka needs a moment after a topic is created
// and after a restart, and these libraries leave the waiting to their caller, or wait for a short time
// only. A gateway needs none, so there every error counts.
var patient = os.Getenv("DRAGOMAN_TEST_TARGET") == "kafka"

// patiently repeats a call that changes nothing.
func patiently[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for {
		value, err := call()
		answered := brokerError(err)
		passes := answered != nil && (answered.Retriable || errors.Is(answered, kerr.ConcurrentTransactions))
		if !patient || !passes || ctx.Err() != nil {
			return value, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// brokerError finds the code that a broker gave, or nil: as franz-go knows it, whichever library it is from.
func brokerError(err error) *kerr.Error {
	var undescribed *sarama.DescribeConfigError
	if errors.As(err, &undescribed) { // it does not unwrap
		err = undescribed.Err
	}
	var ofSarama sarama.KError
	if errors.As(err, &ofSarama) {
		err = kerr.ErrorForCode(int16(ofSarama))
	}
	var ofSegmentio kafka.Error
	if errors.As(err, &ofSegmentio) {
		err = kerr.ErrorForCode(int16(ofSegmentio))
	}
	var answered *kerr.Error
	errors.As(err, &answered)
	return answered
}
