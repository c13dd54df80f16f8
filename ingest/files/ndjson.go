package files

import (
	"bytes"
	"encoding/json"
	"errors"
)

// objects reads lines of JSON, each an event as POST /v1/events takes it. It adds an id and the events' name where they are missing.
type objects struct{ event string }

func newObjects(o Options) (*objects, error) {
	if o.User != "" || o.TS != "" || o.Value != "" || o.ID != "" || len(o.Props) > 0 {
		return nil, errors.New("format ndjson takes events as they are: no fields can be mapped")
	}
	return &objects{event: o.Event}, nil
}

func (o *objects) next(s *Source, dst []byte) (text, members []byte, err error) {
	text, err = s.lines.row()
	if err != nil {
		return text, nil, err
	}
	line := bytes.TrimSpace(text)
	var has map[string]json.RawMessage
	if line[0] != '{' || json.Unmarshal(line, &has) != nil {
		return text, nil, rowError("the line is not a JSON object")
	}
	if id, event := has["id"], has["event"]; string(id) == "null" || string(event) == "null" {
		// null is none: it makes room for ours.
		drop := func(name string, v json.RawMessage) {
			if string(v) == "null" {
				delete(has, name)
			}
		}
		drop("id", id)
		drop("event", event)
		if line, err = json.Marshal(has); err != nil {
			return text, nil, rowError("the line is not a JSON object")
		}
	}
	_, s.hasID = has["id"]
	if _, ok := has["event"]; !ok && o.event != "" {
		dst = member(dst, "event", o.event)
	}
	inner := bytes.TrimSpace(line[1 : len(line)-1])
	if len(inner) > 0 && len(dst) > 0 {
		dst = append(dst, ',')
	}
	return text, append(dst, inner...), nil
}
