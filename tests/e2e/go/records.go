package main

import (
	"encoding/binary"
	"os"
)

const null = -1

type header struct {
	name  string
	value []byte // nil is null, as in keys and values
}

type record struct {
	partition     int32
	offset        int64
	timestampType int8
	timestampMs   int64
	key, value    []byte
	headers       []header
}

// cursor walks over a file of records that the tests have written, which is therefore whole.
type cursor struct {
	data []byte
}

func readRecords(path string) ([]record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	at := cursor{data}
	var records []record
	for len(at.data) > 0 {
		records = append(records, at.record())
	}
	return records, nil
}

func (c *cursor) record() record {
	one := record{
		partition:     int32(binary.BigEndian.Uint32(c.take(4))),
		offset:        int64(binary.BigEndian.Uint64(c.take(8))),
		timestampType: int8(c.take(1)[0]),
		timestampMs:   int64(binary.BigEndian.Uint64(c.take(8))),
	}
	one.key, one.value = c.sized(), c.sized()
	for left := c.length(); left > 0; left-- {
		one.headers = append(one.headers, header{string(c.sized()), c.sized()})
	}
	return one
}

func (c *cursor) take(count int) []byte {
	taken := c.data[:count:count]
	c.data = c.data[count:]
	return taken
}

func (c *cursor) length() int {
	return int(int32(binary.BigEndian.Uint32(c.take(4))))
}

func (c *cursor) sized() []byte {
	length := c.length()
	if length == null {
		return nil
	}
	return c.take(length)
}

func writeRecords(path string, records []record) error {
	var data []byte
	for _, one := range records {
		data = binary.BigEndian.AppendUint32(data, uint32(one.partition))
		data = binary.BigEndian.AppendUint64(data, uint64(one.offset))
		data = append(data, byte(one.timestampType))
		data = binary.BigEndian.AppendUint64(data, uint64(one.timestampMs))
		data = appendSized(appendSized(data, one.key), one.value)
		data = binary.BigEndian.AppendUint32(data, uint32(len(one.headers)))
		for _, each := range one.headers {
			data = appendSized(appendSized(data, []byte(each.name)), each.value)
		}
	}
	return os.WriteFile(path, data, 0o600)
}

func appendSized(data, field []byte) []byte {
	length := int32(null)
	if field != nil {
		length = int32(len(field))
	}
	return append(binary.BigEndian.AppendUint32(data, uint32(length)), field...)
}
