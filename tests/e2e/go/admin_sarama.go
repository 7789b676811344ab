package main

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type saramaAdmin struct {
	client sarama.Client
	sarama.ClusterAdmin
}

func (s *ibm) admin(ctx context.Context, topic string) (calls, error) {
	admin, err := sarama.NewClusterAdminFromClient(s.client)
	if err != nil {
		return nil, err
	}
	return administer(ctx, s, saramaAdmin{s.client, admin}, topic), nil
}

func (s saramaAdmin) createTopic(topic string, partitions int32, configs map[string]string) error {
	detail := sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: pointers(configs),
	}
	return s.CreateTopic(topic, &detail, false)
}

func (s saramaAdmin) config(topic, name string) (string, error) {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}
	entries, err := s.DescribeConfig(resource)
	if err != nil {
		return "", err
	}
	// The names that franz-go has for the same numbers.
	source := kmsg.ConfigSource(entries[0].Source)
	return entries[0].Value + " " + source.String(), nil
}

func (s saramaAdmin) setConfigs(topic string, configs map[string]string) error {
	entries := make(map[string]sarama.IncrementalAlterConfigsEntry)
	for name, value := range configs {
		operation := sarama.IncrementalAlterConfigsOperationSet
		name, isAppended := appended(name)
		if isAppended {
			operation = sarama.IncrementalAlterConfigsOperationAppend
		}
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: operation, Value: &value}
	}
	return s.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
}

func (s saramaAdmin) replaceConfigs(topic string, configs map[string]string) error {
	return s.AlterConfig(sarama.TopicResource, topic, pointers(configs), false)
}

func (s saramaAdmin) growTopic(topic string, partitions int32) error {
	return s.CreatePartitions(topic, partitions, nil, false)
}

func (s saramaAdmin) deleteRecords(topic string, partition int32, before int64) error {
	return s.DeleteRecords(topic, map[int32]int64{partition: before})
}

func (s saramaAdmin) startOffset(topic string, partition int32) (int64, error) {
	return s.client.GetOffset(topic, partition, sarama.OffsetOldest)
}

func (s saramaAdmin) deleteTopic(topic string) error {
	return s.DeleteTopic(topic)
}
