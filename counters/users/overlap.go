package users

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/rollcall/rollcall/counters"
	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/internal/memo"
	"github.com/rollcall/rollcall/internal/period"
)

// The bounds of an expression.
const (
	MaxLeaves = 64
	MaxDepth  = 16
)

// Expression names a set of users: a leaf (Event with its range, or Cohort), or one of And, Or and Not over others. Not is everybody whom
// the project has ever had, without those.
type Expression struct {
	And []Expression `json:"and,omitempty"`
	Or  []Expression `json:"or,omitempty"`
	Not *Expression  `json:"not,omitempty"`

	Event  string `json:"event,omitempty"`
	First  bool   `json:"first,omitempty"` // only those who had the event for the first time ever
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Period string `json:"period,omitempty"`

	Cohort string `json:"cohort,omitempty"` // the name of a saved expression
}

// ReadExpression reads JSON. Members that it does not know are refused: a misspelt condition must not be left out.
func ReadExpression(b []byte) (*Expression, error) {
	e := &Expression{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the expression")
	}
	return e, e.Check()
}

func badExpression(at, format string, args ...any) error {
	return apperr.New(apperr.Invalid, "bad_expression", "%s: %s", at, fmt.Sprintf(format, args...)).On(at)
}

// Check tells whether the expression is well formed: one condition in each place, not too many, not too deep. It does not look into cohorts.
// Error: Invalid (bad_expression), with the place.
func (e *Expression) Check() error {
	leaves := 0
	return e.check("expression", 1, &leaves)
}

func (e *Expression) check(at string, depth int, leaves *int) error {
	kinds := 0
	for _, is := range []bool{e.And != nil, e.Or != nil, e.Not != nil, e.Event != "", e.Cohort != ""} {
		if is {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return badExpression(at, "an expression is one of and, or, not, event and cohort; this has %d of them", kinds)
	case depth > MaxDepth:
		return badExpression(at, "expressions nest %d deep at most", MaxDepth)
	case e.Event == "" && (e.First || e.From != "" || e.To != "" || e.Period != ""):
		return badExpression(at, "first, from, to and period belong to an event")
	case e.And != nil || e.Or != nil:
		list, name := e.And, "and"
		if e.Or != nil {
			list, name = e.Or, "or"
		}
		if len(list) == 0 {
			return badExpression(at+"."+name, "the list is empty")
		}
		for i := range list {
			if err := list[i].check(fmt.Sprintf("%s.%s[%d]", at, name, i), depth+1, leaves); err != nil {
				return err
			}
		}
	case e.Not != nil:
		return e.Not.check(at+".not", depth+1, leaves)
	default:
		if *leaves++; *leaves > MaxLeaves {
			return badExpression(at, "an expression has at most %d events and cohorts", MaxLeaves)
		}
	}
	return nil
}

// OverlapRequest asks how many users an expression has.
type OverlapRequest struct {
	Project    string
	Zone       *time.Location
	Exact      []string
	Expression Expression
	Cohort     func(name string) (Expression, error) // finds a saved expression; its error is passed on
}

// Overlap answers an OverlapRequest.
type Overlap struct {
	Project string `json:"project"`
	head
	Users  Number `json:"users"`
	Of     uint64 `json:"of"` // everybody whom the project has had
	Leaves []Leaf `json:"leaves"`
	// Complete says that everything received before the end of the latest range is counted.
	Complete bool               `json:"complete"`
	Restated *counters.Restated `json:"restated,omitempty"`
}

// Leaf is one event of the expression, in its order, those of cohorts included.
type Leaf struct {
	Event string    `json:"event"`
	First bool      `json:"first,omitempty"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Users uint64    `json:"users"`
	// Not says that the leaf stands below an odd number of nots; Cohort is the cohort that it comes from, the outermost if they nest.
	Not    bool   `json:"not,omitempty"`
	Cohort string `json:"cohort,omitempty"`
}

// node is an expression that is ready to be evaluated.
type node struct {
	and, or []*node
	not     *node
	leaf    int // index into plan.leaves, if nothing else
}

// plan is an expression and what it reads.
type plan struct {
	root    *node
	c       *collection
	leaves  []Leaf
	runs    []run // by leaf
	metrics []string
	needAll bool // there is a not
	key     []byte
	to      time.Time // the latest end
	not     bool      // on the way down: below an odd number of nots
	inside  []string  // likewise: the cohorts
}

// prepare resolves cohorts and ranges.
func (q *Query) prepare(r OverlapRequest) (*plan, error) {
	p := &plan{c: newCollection(r.Zone)}
	var err error
	if err = r.Expression.Check(); err == nil {
		p.root, err = p.add(&r, &r.Expression, "expression", 1, q.o.Clock.Now())
	}
	return p, err
}

func (p *plan) add(r *OverlapRequest, e *Expression, at string, depth int, now time.Time) (*node, error) {
	if depth > MaxDepth {
		return nil, badExpression(at, "expressions nest %d deep at most, those of cohorts included", MaxDepth)
	}
	list := func(name string, of []Expression) ([]*node, error) {
		p.key = append(append(p.key, name...), '(')
		nodes := make([]*node, len(of))
		for i := range of {
			var err error
			if nodes[i], err = p.add(r, &of[i], fmt.Sprintf("%s.%s[%d]", at, name, i), depth+1, now); err != nil {
				return nil, err
			}
		}
		p.key = append(p.key, ')')
		return nodes, nil
	}
	n := &node{}
	var err error
	switch {
	case e.And != nil:
		n.and, err = list("and", e.And)
	case e.Or != nil:
		n.or, err = list("or", e.Or)
	case e.Not != nil:
		p.needAll = true
		p.key = append(p.key, '!')
		p.not = !p.not
		n.not, err = p.add(r, e.Not, at+".not", depth+1, now)
		p.not = !p.not
	case e.Cohort != "":
		if slices.Contains(p.inside, e.Cohort) {
			return nil, badExpression(at, "the cohort %s uses itself", e.Cohort)
		}
		var saved Expression
		if saved, err = r.Cohort(e.Cohort); err != nil {
			return nil, err
		}
		p.inside = append(p.inside, e.Cohort)
		n, err = p.add(r, &saved, at+"("+e.Cohort+")", depth+1, now)
		p.inside = p.inside[:len(p.inside)-1]
		return n, err
	default:
		n.leaf, err = p.addLeaf(r, e, at, now)
	}
	return n, err
}

func (p *plan) addLeaf(r *OverlapRequest, e *Expression, at string, now time.Time) (int, error) {
	if len(p.leaves) >= MaxLeaves {
		return 0, badExpression(at, "an expression has at most %d events, those of cohorts included", MaxLeaves)
	}
	a := About{Project: r.Project, Zone: r.Zone, Exact: r.Exact, From: e.From, To: e.To, Period: e.Period}
	metric, err := a.metric(at+".event", e.Event, "")
	if err != nil {
		return 0, err
	}
	from, to, err := a.span(now)
	if err == nil {
		_, err = a.rows(period.Month, from, to)
	}
	if err != nil {
		var public *apperr.Error
		if errors.As(err, &public) {
			err = public.On(at + "." + public.Field)
		}
		return 0, err
	}
	kind := Active
	if e.First {
		kind = First
	}
	l := Leaf{Event: e.Event, First: e.First, From: from.In(r.Zone), To: to.In(r.Zone), Not: p.not}
	if len(p.inside) > 0 {
		l.Cohort = p.inside[0]
	}
	p.leaves = append(p.leaves, l)
	p.runs = append(p.runs, p.c.days(kind, metric, from, to))
	p.metrics = append(p.metrics, metric)
	p.to = later(p.to, to)
	p.key = fmt.Appendf(p.key, "%d %s %d %d;", kind, metric, from.UnixMilli(), to.UnixMilli())
	return len(p.leaves) - 1, nil
}

// CheckOverlap tells whether an expression could be evaluated now. Errors: those of Overlap that do not hang on what is stored.
func (q *Query) CheckOverlap(r OverlapRequest) error {
	_, err := q.prepare(r)
	return err
}

// eval is the set of a node in a shard. everybody has all ordinals. The result may be an operand: it is only read.
func (n *node) eval(leaves []*roaring.Bitmap, everybody *roaring.Bitmap) *roaring.Bitmap {
	all := func(nodes []*node) []*roaring.Bitmap {
		sets := make([]*roaring.Bitmap, len(nodes))
		for i, of := range nodes {
			sets[i] = of.eval(leaves, everybody)
		}
		return sets
	}
	switch {
	case n.and != nil:
		sets := all(n.and)
		slices.SortFunc(sets, func(a, b *roaring.Bitmap) int { return int(a.GetCardinality()) - int(b.GetCardinality()) })
		return roaring.FastAnd(sets...)
	case n.or != nil:
		return union(all(n.or))
	case n.not != nil:
		return roaring.AndNot(everybody, n.not.eval(leaves, everybody))
	}
	return leaves[n.leaf]
}

// evaluate calls fn with the set of each of the shards from..to-1.
func (q *Query) evaluate(ctx context.Context, project string, from, to int, p *plan, fn func(shard int, set *roaring.Bitmap) error) (*facts, []uint32, error) {
	counts, err := q.dict.Counts(ctx, project)
	if err != nil {
		return nil, nil, err
	}
	f, err := q.store.read(ctx, project, from, to, p.c, func(shard int, sets []*roaring.Bitmap) error {
		leaves := make([]*roaring.Bitmap, len(p.leaves))
		for i := range leaves {
			r := &p.runs[i]
			picked := make([]*roaring.Bitmap, len(r.at))
			for k, at := range r.at {
				picked[k] = sets[at]
			}
			leaves[i] = union(picked)
			p.leaves[i].Users += leaves[i].GetCardinality()
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		var everybody *roaring.Bitmap
		if p.needAll {
			everybody = roaring.New()
			everybody.AddRange(0, uint64(counts[shard]))
			for _, l := range leaves { // who came since the count was read
				everybody.Or(l)
			}
		}
		return fn(shard, p.root.eval(leaves, everybody))
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range p.leaves {
		l := &p.leaves[i]
		if since := f.begin(p.metrics[i], q.o.Clock.Now()); since != nil && l.From.Before(*since) {
			return nil, nil, apperr.New(apperr.Invalid, "not_known",
				"The project has exact sets of the event %s only since %s, so who had it before is not known: begin with %s.", clip(l.Event),
				since.In(p.c.zone).Format(time.RFC3339), period.Of(period.Day, *since, p.c.zone).Next(p.c.zone).Label).On("from")
		}
	}
	return f, counts, nil
}

// Overlap answers an OverlapRequest. Errors: apperr Invalid (bad_expression, and those of Users), Internal (damaged_set,
// damaged_dictionary), Unavailable (redis_unavailable), and those of Cohort.
func (q *Query) Overlap(ctx context.Context, r OverlapRequest) (*Overlap, error) {
	p, err := q.prepare(r)
	if err != nil {
		return nil, err
	}
	end := p.to
	if p.needAll {
		end = q.o.Clock.Now().Add(time.Hour) // everybody grows by the minute
	}
	v, err := q.answer(ctx, r.Project, fmt.Sprintf("overlap %s %s", r.Zone, p.key), end, func(ctx context.Context) (memo.Answer, error) {
		o := &Overlap{Project: r.Project}
		o.Users.Method = Exact
		f, counts, err := q.evaluate(ctx, r.Project, 0, q.o.Shards, p, func(_ int, set *roaring.Bitmap) error {
			o.Users.Value += int64(set.GetCardinality())
			return nil
		})
		if err != nil {
			return memo.Answer{}, err
		}
		for _, n := range counts {
			o.Of += uint64(n)
		}
		o.head = q.head(About{Zone: r.Zone}, f, p.metrics...)
		var sum restated
		for i, r := range f.restated {
			sum.at = max(sum.at, r.at)
			if a := p.c.asks[i]; a.kind == First {
				if _, both := p.c.at[ask{Active, a.metric, a.day}]; both {
					continue // its changes follow from those
				}
			}
			sum.changes += r.changes
		}
		if sum.changes > 0 {
			o.Restated = &counters.Restated{At: time.UnixMilli(sum.at).UTC(), Changes: int64(sum.changes)}
		}
		o.Leaves, o.Complete = p.leaves, o.complete(p.to)
		return memo.Answer{Value: o, Weight: len(p.leaves), Final: o.Complete}, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*Overlap), nil
}
