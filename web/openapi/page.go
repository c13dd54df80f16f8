package openapi

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	//go:embed page.gohtml
	pageSource string
	//go:embed page.css
	style string

	pageTemplate = template.Must(template.New("page").Parse(pageSource))
)

// page is what the template shows.
type page struct {
	Style                    template.CSS
	Title, Summary, Version  string
	Intro                    []block
	Groups                   []*group
	Rejections, ProblemCodes []code
	Schemas                  []shape
}

// group is the operations of a tag.
type group struct {
	Name, ID string
	Text     []block
	Calls    []*call
}

// call is an operation.
type call struct {
	ID, Method, Path string
	Also             []place // other URLs for the same
	Summary          string
	Text             []block
	Key              string
	Parameters       []row
	SameParameters   *call // an earlier one of the group with just these
	Body             *body
	Answers          []answer
	SameAnswers      *call // likewise
	Samples          []sample
}

type place struct{ ID, Method, Path string }

// row is a parameter, or a member of an object.
type row struct {
	Name, Where string
	Required    bool
	Type        []span
	Text        []span
	Examples    []string
	Scope       string
}

type body struct {
	Text     []span
	Required bool
	Forms    []form
}

// form is a content type.
type form struct {
	Name     string
	Type     []span
	Examples []sample
}

type answer struct {
	Status  string
	Text    []span
	Headers []string
	Forms   []form
}

// Plain tells that there is nothing more to say about an answer.
func (a answer) Plain() bool { return len(a.Headers) == 0 && len(a.Forms) == 0 }

type sample struct {
	Label, Source string
	Status        int // that it is meant to get; 0 = success
}

type code struct {
	Name, ID string
	Status   int
	Text     []span
}

// shape is a schema that has a name.
type shape struct {
	Name, ID string
	Text     []block
	Type     []span // of one that has no members, or more than its own
	Members  []row
	Choices  []code
}

// render makes the page of a document.
func render(source []byte) ([]byte, error) {
	d, err := parse(source)
	if err != nil {
		return nil, err
	}
	p := page{Style: template.CSS(style), Title: d.Info.Title, Summary: d.Info.Summary, Version: d.Info.Version, Intro: blocks(d.Info.Description)}
	links := linker{}
	for _, e := range d.Components.Schemas {
		switch e.Name {
		case "RejectionCode":
			p.Rejections = links.codes("verdict-", e.Value.OneOf)
		case "ProblemCode":
			p.ProblemCodes = links.codes("code-", e.Value.OneOf)
		}
	}
	for _, t := range d.Tags {
		p.Groups = append(p.Groups, &group{Name: t.Name, ID: "api-" + slug(t.Name), Text: blocks(t.Description)})
	}
	byID := map[string]*call{}
	for _, item := range d.Paths {
		for _, m := range []struct {
			method string
			*operation
		}{{"GET", item.Value.Get}, {"POST", item.Value.Post}, {"PUT", item.Value.Put}, {"PATCH", item.Value.Patch}, {"DELETE", item.Value.Delete}} {
			if m.operation == nil {
				continue
			}
			if m.SameAs != "" {
				of := byID[m.SameAs]
				if of == nil {
					return nil, fmt.Errorf("%s: x-same-as names nothing before it", m.ID)
				}
				of.Also = append(of.Also, place{m.ID, m.method, item.Name})
				continue
			}
			c := links.call(m.method, item.Name, slices.Concat(item.Value.Parameters, m.Parameters), m.operation)
			byID[c.ID] = c
			g := slices.IndexFunc(p.Groups, func(g *group) bool { return slices.Contains(m.Tags, g.Name) })
			if g < 0 {
				return nil, fmt.Errorf("%s has no tag that is declared", m.ID)
			}
			c.compare(p.Groups[g].Calls)
			p.Groups[g].Calls = append(p.Groups[g].Calls, c)
		}
	}
	for _, e := range d.Components.Schemas {
		if e.Name != "RejectionCode" && e.Name != "ProblemCode" {
			p.Schemas = append(p.Schemas, links.shape(e.Name, e.Value))
		}
	}
	var out bytes.Buffer
	err = pageTemplate.Execute(&out, &p)
	return out.Bytes(), err
}

// linker makes a link of each code that has a place in one of the tables.
type linker map[string]string

func (l linker) codes(prefix string, list []*schema) (codes []code) {
	for _, s := range list {
		c := code{Name: s.Const.Value, ID: prefix + s.Const.Value, Status: s.Status, Text: spans(s.Description)}
		l[c.Name] = "#" + c.ID
		codes = append(codes, c)
	}
	return codes
}

// line is spans, with links.
func (l linker) line(text string) []span {
	list := spans(strings.Join(strings.Fields(text), " "))
	for i := range list {
		if list[i].Code {
			list[i].Link = l[list[i].Text]
		}
	}
	return list
}

var keys = map[string]string{
	"write": "A write key", "read": "A read key", "admin": "An admin key", "root": "An admin key that opens every project",
}

func (l linker) call(method, path string, parameters []parameter, o *operation) *call {
	c := &call{ID: o.ID, Method: method, Path: path, Summary: o.Summary, Text: blocks(o.Description), Key: "No key"}
	if len(o.Security) > 0 && len(o.Security[0]) > 0 && len(o.Security[0][0].Value) > 0 {
		c.Key = keys[o.Security[0][0].Value[0]]
	}
	for _, q := range parameters {
		r := row{Name: q.Name, Where: q.In, Required: q.Required, Type: l.typeOf(q.Schema), Text: l.line(q.Description), Scope: q.Scope}
		if !q.Example.IsZero() {
			r.Examples = append(r.Examples, text(&q.Example))
		}
		for _, e := range q.Examples {
			r.Examples = append(r.Examples, text(&e.Value.Value))
		}
		c.Parameters = append(c.Parameters, r)
	}
	if o.Body != nil {
		c.Body = &body{Text: l.line(o.Body.Description), Required: o.Body.Required, Forms: l.forms(o.Body.Content)}
	}
	for _, r := range o.Responses {
		a := answer{Status: r.Name, Text: l.line(r.Value.Description)}
		c.Answers = append(c.Answers, a)
		if len(r.Value.Content) == 1 && r.Value.Content[0].Name == "application/problem+json" {
			continue // the page tells once what errors look like
		}
		for _, h := range r.Value.Headers {
			a.Headers = append(a.Headers, h.Name)
		}
		a.Forms = l.forms(r.Value.Content)
		c.Answers[len(c.Answers)-1] = a
	}
	for _, s := range o.Samples {
		c.Samples = append(c.Samples, sample{s.Label, strings.TrimSpace(s.Source), s.Status})
	}
	return c
}

// compare notes what an earlier call of the group says already.
func (c *call) compare(earlier []*call) {
	for _, e := range earlier {
		if c.SameParameters == nil && len(c.Parameters) > 2 && reflect.DeepEqual(c.Parameters, e.Parameters) {
			c.SameParameters = e
		}
		if c.SameAnswers == nil && reflect.DeepEqual(c.Answers, e.Answers) {
			c.SameAnswers = e
		}
	}
}

func (l linker) forms(content ordered[media]) (forms []form) {
	for _, m := range content {
		f := form{Name: m.Name}
		if m.Value.Schema != nil {
			f.Type = l.typeOf(m.Value.Schema)
			if d := m.Value.Schema.Description; d != "" && m.Value.Schema.Ref == "" {
				f.Type = l.line(d)
			}
		}
		for _, e := range m.Value.Examples {
			f.Examples = append(f.Examples, sample{e.Value.Summary, text(&e.Value.Value), e.Value.Status})
		}
		forms = append(forms, f)
	}
	return forms
}

func (l linker) shape(name string, s *schema) shape {
	v := shape{Name: name, ID: "schema-" + name, Text: blocks(s.Description), Members: l.members(s)}
	if s.Ref != "" || len(v.Members) == 0 {
		v.Type = l.typeOf(s)
	}
	if len(v.Members) == 0 {
		for _, one := range s.OneOf {
			v.Choices = append(v.Choices, code{Name: one.Const.Value, Text: l.line(one.Description)})
		}
	}
	return v
}

func (l linker) members(s *schema) (rows []row) {
	for _, m := range s.Properties {
		rows = append(rows, row{
			Name: m.Name, Required: slices.Contains(s.Required, m.Name), Type: l.typeOf(m.Value), Text: l.line(m.Value.Description),
		})
		nested := m.Value
		if nested.Items != nil {
			nested = nested.Items
		}
		for _, r := range l.members(nested) {
			r.Name = m.Name + "." + r.Name
			rows = append(rows, r)
		}
	}
	return rows
}

// typeOf says in a few words what a value is.
func (l linker) typeOf(s *schema) (t []span) {
	add := func(format string, args ...any) { t = append(t, span{Text: fmt.Sprintf(format, args...)}) }
	code := func(n *yaml.Node) { t = append(t, span{Text: text(n), Code: true}) }
	switch {
	case s == nil:
		return nil
	case s.Ref == schemas+"RejectionCode":
		return []span{{Text: "a code", Link: "#rejections"}}
	case s.Ref == schemas+"ProblemCode":
		return []span{{Text: "a code", Link: "#codes"}}
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, schemas)
		t = append(t, span{Text: name, Link: "#schema-" + name})
	case len(s.AnyOf) > 0:
		for i, one := range s.AnyOf {
			if i > 0 {
				add(" or ")
			}
			t = append(t, l.typeOf(one)...)
		}
	case len(s.Enum) > 0:
		for i := range s.Enum {
			if i > 0 {
				add(" ")
			}
			code(&s.Enum[i])
		}
	case len(s.OneOf) > 0:
		add("one of")
	case !s.Const.IsZero():
		code(&s.Const)
	case s.Items != nil:
		add("array of ")
		t = append(t, l.typeOf(s.Items)...)
	case s.Format == "date-time":
		add("RFC 3339 instant")
		if slices.Contains(s.Type, "null") {
			add(" or null")
		}
	default:
		add("%s", strings.Join(s.Type, ", "))
	}
	if s.MaxLength > 0 {
		add(", at most %d bytes", s.MaxLength)
	}
	if s.MaxItems > 0 {
		add(", at most %d", s.MaxItems)
	}
	if s.MaxProperties > 0 {
		add(", at most %d", s.MaxProperties)
	}
	if s.Minimum != nil && s.Maximum != nil {
		add(", %d to %d", *s.Minimum, *s.Maximum)
	}
	if !s.Default.IsZero() {
		add(", default ")
		code(&s.Default)
	}
	return t
}
