package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transact begins a transaction with franz-go, produces one record in it, and prints a line: the
// milliseconds it took, and the error.
func transact(bootstrap, id, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	begun := time.Now()
	if err = client.BeginTransaction(); err == nil {
		err = client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
	}
	fmt.Printf("%d\t%v\n", time.Since(begun).Milliseconds(), err)
	return nil
}
