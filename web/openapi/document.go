package openapi

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is as much of an OpenAPI document as the page shows. References are replaced by what they name, except those to schemas.
type document struct {
	Info struct {
		Title, Summary, Version, Description string
	}
	Tags  []struct{ Name, Description string }
	Paths ordered[struct {
		Parameters                    []parameter
		Get, Post, Put, Patch, Delete *operation
	}]
	Components struct {
		Schemas ordered[*schema]
	}
}

type operation struct {
	Tags        []string
	ID          string `yaml:"operationId"`
	Summary     string
	Description string
	SameAs      string `yaml:"x-same-as"`
	Security    []ordered[[]string]
	Parameters  []parameter
	Body        *struct {
		Description string
		Required    bool
		Content     ordered[media]
	} `yaml:"requestBody"`
	Responses ordered[response]
	Samples   []struct {
		Label, Source string
		Status        int `yaml:"x-status"`
	} `yaml:"x-codeSamples"`
}

type parameter struct {
	Name, In    string
	Description string
	Required    bool
	Scope       string `yaml:"x-scope"`
	Schema      *schema
	Example     yaml.Node
	Examples    ordered[example]
}

type media struct {
	Schema   *schema
	Examples ordered[example]
}

type example struct {
	Summary string
	Status  int `yaml:"x-status"`
	Value   yaml.Node
}

type response struct {
	Description string
	Headers     ordered[struct {
		Description string
		Required    bool
	}]
	Content ordered[media]
}

type schema struct {
	Ref           string `yaml:"$ref"`
	Description   string
	Type          words
	Format        string
	Const         yaml.Node
	Enum          []yaml.Node
	Default       yaml.Node
	OneOf         []*schema `yaml:"oneOf"`
	AnyOf         []*schema `yaml:"anyOf"`
	Items         *schema
	Properties    ordered[*schema]
	Required      []string
	MaxLength     int `yaml:"maxLength"`
	MaxItems      int `yaml:"maxItems"`
	MaxProperties int `yaml:"maxProperties"`
	Minimum       *int
	Maximum       *int
	Status        int `yaml:"x-status"`
}

// words is a string or a list of them.
type words []string

func (w *words) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*w = words{n.Value}
		return nil
	}
	return n.Decode((*[]string)(w))
}

// ordered is a mapping in the order of the document.
type ordered[T any] []entry[T]

type entry[T any] struct {
	Name  string
	Value T
}

func (o *ordered[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want a mapping", n.Line)
	}
	for i := 0; i < len(n.Content); i += 2 {
		e := entry[T]{Name: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&e.Value); err != nil {
			return err
		}
		*o = append(*o, e)
	}
	return nil
}

// parse reads a document.
func parse(source []byte) (*document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		return nil, err
	}
	if err := dereference(&root, &root); err != nil {
		return nil, err
	}
	var d document
	return &d, root.Decode(&d)
}

// dereference puts what a reference names in its place, except for schemas, whose names the page shows. A description beside a reference
// goes before the one that it names.
func dereference(root, n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		if ref := member(n, "$ref"); ref != nil && !strings.HasPrefix(ref.Value, schemas) {
			target := root.Content[0]
			for name := range strings.SplitSeq(strings.TrimPrefix(ref.Value, "#/"), "/") {
				if target = member(target, name); target == nil {
					return fmt.Errorf("line %d: %s names nothing", n.Line, ref.Value)
				}
			}
			merged := yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			own := member(n, "description")
			for i := 0; i < len(target.Content); i += 2 {
				if own == nil || target.Content[i].Value != "description" {
					merged.Content = append(merged.Content, target.Content[i], target.Content[i+1])
				}
			}
			if own != nil {
				merged.Content = append(merged.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: "description"}, own)
			}
			*n = merged
		}
	}
	for _, c := range n.Content {
		if err := dereference(root, c); err != nil {
			return err
		}
	}
	return nil
}

const schemas = "#/components/schemas/"

// member is the value of a mapping's key, nil if it has none.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
