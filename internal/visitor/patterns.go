package visitor

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

//go:generate ./refresh.sh 5.2.3
//go:embed isbot.txt
var isbotList string

// robots are the patterns of the list by which a sender says of itself that it is a robot. The others also find HTTP libraries, and any
// program that doesn't look like a browser.
var robots = []string{
	`(?<! cu)bots?(?:\b|_)`, "crawl", "spider", "scrape", "headless", "phantomjs", "pingdom", "httrack", "nutch", "^facebook", "^whatsapp",
}

// A pattern is one expression of the list. Most are plain text, for which strings.Contains is many times faster than an expression.
type pattern struct {
	source    string
	needs     string         // text that is in every match
	anchored  bool           // needs is at the start
	re        *regexp.Regexp // nil: needs says it all
	notBefore []string       // (?<!a|b): texts that a match may not follow
	notAfter  []string       // (?!a|b): texts that may not follow a match
}

// parseList reads one pattern a line. Lines that start with # are comments.
func parseList(list string) ([]pattern, error) {
	var patterns []pattern
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		p, err := parsePattern(line)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", line, err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// parsePattern reads an expression of JavaScript. Go's are linear in time and so have no lookaround; the two forms that the list uses, plain
// texts before the start and after the end, are taken off here and looked at by match.
func parsePattern(source string) (pattern, error) {
	p := pattern{source: source}
	expr := source
	if after, ok := strings.CutPrefix(expr, "(?<!"); ok {
		texts, rest, ok := strings.Cut(after, ")")
		if !ok {
			return p, errors.New("a lookbehind without an end")
		}
		p.notBefore, expr = strings.Split(texts, "|"), rest
	}
	if before, texts, ok := strings.Cut(expr, "(?!"); ok {
		texts, ok = strings.CutSuffix(texts, ")")
		if !ok {
			return p, errors.New("text after a lookahead")
		}
		if inner, ok := strings.CutPrefix(texts, "(?:"); ok {
			texts = strings.TrimSuffix(inner, ")")
		}
		p.notAfter, expr = strings.Split(texts, "|"), before
	}
	for _, text := range slices.Concat(p.notBefore, p.notAfter) {
		if text == "" || regexp.QuoteMeta(text) != text {
			return p, fmt.Errorf("lookaround is plain text only, not %q", text)
		}
	}
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return p, err
	}
	tree = tree.Simplify()
	plain := false
	p.needs, p.anchored, plain = text(tree)
	if plain && p.notBefore == nil && p.notAfter == nil {
		return p, nil
	}
	p.re, err = regexp.Compile(expr)
	return p, err
}

// text returns the longest text that every match of the expression holds, whether a match can only start with it, and whether that is all
// the expression says.
func text(tree *syntax.Regexp) (needs string, anchored, plain bool) {
	switch tree.Op {
	case syntax.OpLiteral:
		return string(tree.Rune), false, true
	case syntax.OpConcat:
		begin := tree.Sub[0].Op == syntax.OpBeginText
		if begin && tree.Sub[1].Op == syntax.OpLiteral {
			return string(tree.Sub[1].Rune), true, len(tree.Sub) == 2
		}
		for _, sub := range tree.Sub {
			if s, _, _ := text(sub); len(s) > len(needs) {
				needs = s
			}
		}
	}
	return needs, false, false
}

// match reports whether the pattern is found in s, which is in lower case.
func (p *pattern) match(s string) bool {
	if p.anchored && !strings.HasPrefix(s, p.needs) || !strings.Contains(s, p.needs) {
		return false
	}
	if p.re == nil {
		return true
	}
	if p.notBefore == nil && p.notAfter == nil {
		return p.re.MatchString(s)
	}
	for _, at := range p.re.FindAllStringIndex(s, -1) {
		before := func(text string) bool { return strings.HasSuffix(s[:at[0]], text) }
		after := func(text string) bool { return strings.HasPrefix(s[at[1]:], text) }
		if !slices.ContainsFunc(p.notBefore, before) && !slices.ContainsFunc(p.notAfter, after) {
			return true
		}
	}
	return false
}
