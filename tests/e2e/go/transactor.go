package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// transaction is an order of tests/e2e/transactors/__init__.py.
type transaction struct {
	Order      string
	Bootstrap  string
	Producer   string
	ID         string
	TimeoutMs  int64 `json:"timeout_ms"`
	Topic      string
	Partition  int32
	Partitions int
	Values     []string
	Commit     bool
	Committed  bool
	Group      string
	Source     string
	Target     string
	Batch      int
	AbortEvery int `json:"abort_every"`
	PauseMs    int `json:"pause_ms"`
}

// pause is between the records of a transaction and its offsets.
func (t transaction) pause() {
	time.Sleep(time.Duration(t.PauseMs) * time.Millisecond)
}

func (t transaction) isAborted(number int) bool {
	return t.AbortEvery > 0 && number%t.AbortEvery == 0
}

// transactor is one client library, of which each producer has a name.
type transactor interface {
	init(ctx context.Context, by transaction) error
	begin(by transaction) error
	send(ctx context.Context, by transaction) error
	end(ctx context.Context, by transaction) error
	// read calls add with all records from the start on, those of a partition in order, until it gives false.
	read(ctx context.Context, by transaction, add func(partition int32, value []byte) bool) error
	// copy calls committed with each value of a committed transaction, until it gives false.
	copy(by transaction, committed func(value []byte) bool) error
}

var transactors = map[string]func() transactor{
	"franz-go": func() transactor { return &franzTransactor{producers: map[string]*franzProducer{}} },
	"sarama":   func() transactor { return &saramaTransactor{producers: map[string]*saramaProducer{}} },
}

const end = "end"

const callTimeout = 60 * time.Second

// runTransactor carries orders out until stdin ends.
func runTransactor(library string) error {
	made, known := transactors[library]
	if !known {
		return fmt.Errorf("unknown client %q", library)
	}
	running := made()
	orders := bufio.NewReader(os.Stdin)
	results := json.NewEncoder(os.Stdout)
	for {
		line, err := orders.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var by transaction
		if err == nil {
			err = json.Unmarshal(line, &by)
		}
		if err != nil {
			return err
		}
		result, err := transacted(running, by)
		if err != nil {
			result = answer{"kind": kindOf(err), "error": err.Error()}
		}
		if err := results.Encode(result); err != nil {
			return err
		}
	}
}

func transacted(running transactor, by transaction) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch by.Order {
	case "init":
		return answer{}, running.init(ctx, by)
	case "begin":
		return answer{}, running.begin(by)
	case "send":
		return answer{}, running.send(ctx, by)
	case "end":
		return answer{}, running.end(ctx, by)
	case "read":
		values, err := readUntilEnd(ctx, running, by)
		return answer{"values": values}, err
	case "copy":
		ends := 0
		return answer{}, running.copy(by, func(value []byte) bool {
			if string(value) == end {
				ends++
			}
			return ends < by.Partitions
		})
	}
	return nil, fmt.Errorf("unknown order %q", by.Order)
}

func readUntilEnd(ctx context.Context, running transactor, by transaction) ([][]string, error) {
	values := make([][]string, by.Partitions)
	isOver := func(partition int) bool {
		of := values[partition]
		return len(of) > 0 && of[len(of)-1] == end
	}
	err := running.read(ctx, by, func(partition int32, value []byte) bool {
		if !isOver(int(partition)) {
			values[partition] = append(values[partition], string(value))
		}
		for each := range values {
			if !isOver(each) {
				return true
			}
		}
		return false
	})
	return values, err
}

// kindOf is the name of a broker's error code where there is one.
func kindOf(err error) string {
	if answered := brokerError(err); answered != nil {
		return answered.Message
	}
	return fmt.Sprintf("%T", err)
}
