package main

import (
	"context"
	"fmt"
	"time"
)

// calls is what each admin call gave: a value, or the name of the error's code.
type calls map[string]string

// administrator is what the admin clients of both libraries can do.
type administrator interface {
	createTopic(topic string, partitions int32, configs map[string]string) error
	// config describes one config of a topic: its value and where that comes from.
	config(topic, name string) (string, error)
	// setConfigs changes these and leaves the others; a name with a leading + has the value appended.
	setConfigs(topic string, configs map[string]string) error
	// replaceConfigs takes the others back to their defaults.
	replaceConfigs(topic string, configs map[string]string) error
	growTopic(topic string, partitions int32) error
	deleteRecords(topic string, partition int32, before int64) error
	startOffset(topic string, partition int32) (int64, error)
	deleteTopic(topic string) error
}

// administer makes all calls, about a topic that must not exist before and does not afterwards.
func administer(ctx context.Context, client library, by administrator, topic string) calls {
	said := calls{}
	said.configs(by, topic)
	said.of("grow", func() (any, error) { return "", by.growTopic(topic, 3) })
	said.of("shrink", func() (any, error) { return "", by.growTopic(topic, 2) })
	said.of("grow what is missing", func() (any, error) { return "", by.growTopic(topic+"-missing", 2) })
	said.of("produce", func() (any, error) {
		offsets, err := client.produce(ctx, order{Topic: topic, Codec: "none"}, make([]record, 5))
		return len(offsets), err
	})
	said.of("delete records", func() (any, error) { return "", by.deleteRecords(topic, 0, 2) })
	said.of("start offset", func() (any, error) { return by.startOffset(topic, 0) })
	said.of("delete beyond the end", func() (any, error) { return "", by.deleteRecords(topic, 0, 6) })
	said.of("delete all records", func() (any, error) { return "", by.deleteRecords(topic, 0, -1) })
	said.of("start offset at the end", func() (any, error) { return by.startOffset(topic, 0) })
	said.of("delete topic", func() (any, error) { return "", by.deleteTopic(topic) })
	said.of("delete again", func() (any, error) { return "", by.deleteTopic(topic) })
	return said
}

func (c calls) configs(by administrator, topic string) {
	day := map[string]string{"retention.ms": "86400000"}
	c.of("create", func() (any, error) { return "", by.createTopic(topic, 1, day) })
	c.of("create again", func() (any, error) { return "", by.createTopic(topic, 1, nil) })
	c.of("create with a bad config", func() (any, error) {
		return "", by.createTopic(topic+"-bad", 1, map[string]string{"retention.ms": "soon"})
	})
	c.of("create without partitions", func() (any, error) { return "", by.createTopic(topic+"-bad", 0, nil) })
	c.of("retention as created", func() (any, error) { return by.config(topic, "retention.ms") })
	c.of("cleanup as created", func() (any, error) { return by.config(topic, "cleanup.policy") })
	c.of("set", func() (any, error) {
		return "", by.setConfigs(topic, map[string]string{"flush.ms": "7", "+cleanup.policy": "compact"})
	})
	c.of("flush when set", func() (any, error) { return by.config(topic, "flush.ms") })
	c.of("cleanup when appended", func() (any, error) { return by.config(topic, "cleanup.policy") })
	c.of("retention when set", func() (any, error) { return by.config(topic, "retention.ms") })
	c.of("set badly", func() (any, error) {
		return "", by.setConfigs(topic, map[string]string{"flush.ms": "soon"})
	})
	c.of("replace", func() (any, error) {
		return "", by.replaceConfigs(topic, map[string]string{"flush.ms": "8"})
	})
	c.of("flush when replaced", func() (any, error) { return by.config(topic, "flush.ms") })
	c.of("retention when replaced", func() (any, error) { return by.config(topic, "retention.ms") })
	c.of("describe what is missing", func() (any, error) { return by.config(topic+"-missing", "flush.ms") })
}

func (c calls) of(name string, call func() (any, error)) {
	if patient { // with what the call before has changed
		time.Sleep(500 * time.Millisecond)
	}
	value, err := call()
	if err != nil {
		value = codeOf(err)
	}
	c[name] = fmt.Sprint(value)
}

// codeOf names the code that the broker gave, or says what the library says.
func codeOf(err error) string {
	if answered := brokerError(err); answered != nil {
		return answered.Message
	}
	return err.Error()
}

// appended is true for a name with a leading +, which it takes off.
func appended(name string) (string, bool) {
	if name[0] == '+' {
		return name[1:], true
	}
	return name, false
}

func pointers(configs map[string]string) map[string]*string {
	found := make(map[string]*string)
	for name, value := range configs {
		found[name] = &value
	}
	return found
}
