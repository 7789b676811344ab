package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
)

type franzAdmin struct {
	ctx context.Context
	*kadm.Client
}

func (f *franz) admin(ctx context.Context, topic string) (calls, error) {
	return administer(ctx, f, franzAdmin{ctx, f.control}, topic), nil
}

func (f franzAdmin) createTopic(topic string, partitions int32, configs map[string]string) error {
	_, err := f.CreateTopic(f.ctx, partitions, 1, pointers(configs), topic)
	return err
}

func (f franzAdmin) config(topic, name string) (string, error) {
	described, err := f.DescribeTopicConfigs(f.ctx, topic)
	if err != nil {
		return "", err
	}
	found, err := described.On(topic, nil)
	if err = errors.Join(err, found.Err); err != nil {
		return "", err
	}
	for _, config := range found.Configs {
		if config.Key == name {
			return config.MaybeValue() + " " + config.Source.String(), nil
		}
	}
	return "", errors.New("not described")
}

func (f franzAdmin) setConfigs(topic string, configs map[string]string) error {
	var changes []kadm.AlterConfig
	for name, value := range configs {
		operation := kadm.SetConfig
		name, isAppended := appended(name)
		if isAppended {
			operation = kadm.AppendConfig
		}
		changes = append(changes, kadm.AlterConfig{Op: operation, Name: name, Value: &value})
	}
	altered, err := f.AlterTopicConfigs(f.ctx, changes, topic)
	return errors.Join(err, failure(altered, topic))
}

func (f franzAdmin) replaceConfigs(topic string, configs map[string]string) error {
	var state []kadm.AlterConfig
	for name, value := range configs {
		state = append(state, kadm.AlterConfig{Name: name, Value: &value})
	}
	altered, err := f.AlterTopicConfigsState(f.ctx, state, topic)
	return errors.Join(err, failure(altered, topic))
}

func failure(altered kadm.AlterConfigsResponses, topic string) error {
	found, err := altered.On(topic, nil)
	return errors.Join(err, found.Err)
}

func (f franzAdmin) growTopic(topic string, partitions int32) error {
	grown, err := f.UpdatePartitions(f.ctx, int(partitions), topic)
	return errors.Join(err, grown.Error())
}

func (f franzAdmin) deleteRecords(topic string, partition int32, before int64) error {
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, partition, before, -1)
	deleted, err := f.DeleteRecords(f.ctx, offsets)
	return errors.Join(err, deleted.Error())
}

func (f franzAdmin) startOffset(topic string, partition int32) (int64, error) {
	found, err := f.ListStartOffsets(f.ctx, topic)
	offset := found[topic][partition]
	return offset.Offset, errors.Join(err, offset.Err)
}

func (f franzAdmin) deleteTopic(topic string) error {
	deleted, err := f.DeleteTopics(f.ctx, topic)
	return errors.Join(err, deleted.Error())
}
