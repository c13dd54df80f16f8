package openapi

import (
	"encoding/json"
	"strings"

	"go.yaml.in/yaml/v3"
)

// width is how long a line of an example may be before its parts get lines of their own.
const width = 56

// text writes a value of the document as people like to read it: a string as it is, anything else as JSON in the order of the document.
func text(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return strings.TrimSuffix(n.Value, "\n")
	}
	return jsonText(n, "")
}

// jsonText is the JSON of a value, on one line if that is short enough.
func jsonText(n *yaml.Node, indent string) string {
	var items []string
	open, closing := "{", "}"
	inner := indent + "  "
	each := func(indent string) []string {
		items = items[:0]
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i < len(n.Content); i += 2 {
				items = append(items, quoted(n.Content[i].Value)+": "+jsonText(n.Content[i+1], indent))
			}
		case yaml.SequenceNode:
			open, closing = "[", "]"
			for _, c := range n.Content {
				items = append(items, jsonText(c, indent))
			}
		}
		return items
	}
	if n.Kind == yaml.ScalarNode {
		if n.Tag == "!!str" {
			return quoted(n.Value)
		}
		return n.Value // a number, true, false or null
	}
	line := strings.Join(each(inner), ", ")
	if !strings.Contains(line, "\n") && len(indent)+len(line) <= width {
		return open + line + closing
	}
	return open + "\n" + inner + strings.Join(each(inner), ",\n"+inner) + "\n" + indent + closing
}

func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
