// The Go client libraries for the end-to-end tests: one JSON order a line on stdin, one JSON answer a
// line on stdout. Records travel in files; tests/support/record_file.py describes their layout. Told `members`
// and more, the program is members of a group instead (members.go); with
// `transactor`, it carries out orders of transactions (transactor.go); with `transact`, it tries a transaction.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/IBM/sarama"
)

type order struct {
	Order          string
	Client         string
	Bootstrap      string
	TimeoutMs      int64 `json:"timeout_ms"`
	Topic          string
	PartitionCount int32 `json:"partition_count"`
	Codec          string
	Idempotent     bool
	File           string
	Partition      int32
	Partitions     []int32
	From           string
	At             int64
	Count          int
}

type answer map[string]any

// library is one client library, connected to order.Bootstrap.
type library interface {
	create(ctx context.Context, topic string, partitions int32) error
	partitionCount(ctx context.Context, topic string) (int, error)
	// produce gives the acked offset of each record, in the order of the records.
	produce(ctx context.Context, by order, records []record) ([]int64, error)
	// position fixes the start of every partition at an offset.
	position(ctx context.Context, by order) (reader, error)
	end(ctx context.Context, topic string, partition int32) (int64, error)
	// admin calls what there is about a topic that it creates; each answer is a value or an error's name.
	admin(ctx context.Context, topic string) (calls, error)
	close()
}

// reader gives the next record of any partition, those of one partition in order.
type reader interface {
	next(ctx context.Context) (record, error)
	close()
}

// program holds what the order "position" leaves for the order "read".
type program struct {
	positioned   reader
	positionedAt library
	positionedBy order
}

func main() {
	log.SetOutput(os.Stderr)
	if len(os.Args) > 1 && os.Args[1] == "members" {
		if err := runMembers(os.Args[2:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "transactor" {
		if err := runTransactor(os.Args[2]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) == 5 && os.Args[1] == "transact" {
		if err := transact(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	orders := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	var running program
	for {
		line, err := orders.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(running.answer(line)); err != nil {
			log.Fatal(err)
		}
	}
}

func (p *program) answer(line []byte) answer {
	var given order
	err := json.Unmarshal(line, &given)
	if err == nil {
		var done answer
		if done, err = p.carryOut(given); err == nil {
			return done
		}
	}
	kind := fmt.Sprintf("%T", err)
	if errors.Is(err, errTopicExists) {
		kind = "TopicExists"
	}
	return answer{"kind": kind, "error": err.Error()}
}

func (p *program) carryOut(given order) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(given.TimeoutMs)*time.Millisecond)
	defer cancel()
	if given.Order == "read" {
		return answer{}, p.read(ctx)
	}
	client, err := connected(given)
	if err != nil {
		return nil, err
	}
	if given.Order == "position" {
		return answer{}, p.position(ctx, client, given)
	}
	defer client.close()
	switch given.Order {
	case "create":
		return answer{}, client.create(ctx, given.Topic, given.PartitionCount)
	case "describe":
		count, err := patiently(ctx, func() (int, error) { return client.partitionCount(ctx, given.Topic) })
		return answer{"partition_count": count}, err
	case "produce":
		return produce(ctx, client, given)
	case "end":
		offset, err := patiently(ctx, func() (int64, error) {
			return client.end(ctx, given.Topic, given.Partition)
		})
		return answer{"offset": offset}, err
	case "admin":
		said, err := client.admin(ctx, given.Topic)
		return answer{"answers": said}, err
	}
	return nil, fmt.Errorf("unknown order %q", given.Order)
}

func connected(given order) (library, error) {
	switch given.Client {
	case "sarama":
		return connectSarama(given, sarama.MaxVersion)
	case "sarama-2.1":
		return connectSarama(given, sarama.DefaultVersion)
	case "kafka-go":
		return connectSegmentio(given), nil
	case "franz-go":
		return connectFranz(given)
	}
	return nil, fmt.Errorf("unknown client %q", given.Client)
}

func produce(ctx context.Context, client library, given order) (answer, error) {
	records, err := readRecords(given.File)
	if err != nil {
		return nil, err
	}
	offsets, err := client.produce(ctx, given, records)
	return answer{"offsets": offsets}, err
}

func (p *program) position(ctx context.Context, client library, given order) error {
	positioned, err := patiently(ctx, func() (reader, error) { return client.position(ctx, given) })
	if err != nil {
		client.close()
		return err
	}
	p.positioned, p.positionedAt, p.positionedBy = positioned, client, given
	return nil
}

func (p *program) read(ctx context.Context) error {
	defer p.positionedAt.close()
	defer p.positioned.close()
	records := make([]record, 0, p.positionedBy.Count)
	for len(records) < p.positionedBy.Count {
		next, err := p.positioned.next(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d records: %w", len(records), p.positionedBy.Count, err)
		}
		records = append(records, next)
	}
	return writeRecords(p.positionedBy.File, records)
}
