package openapi

import (
	"slices"
	"strings"
	"unicode"
)

// The descriptions of the document are Markdown of a kind that is simple enough to be read here: paragraphs, headings (##), lists (-),
// tables, fenced blocks; within a line `code` and [links](#place).

// block is one of them; what it holds says what it is.
type block struct {
	Heading string
	ID      string // of a heading
	Text    []span
	List    [][]span
	Table   [][][]span // the first row is its head
	Code    string
}

// span is a piece of a line.
type span struct {
	Text string
	Code bool
	Link string
}

// blocks reads a description.
func blocks(text string) (list []block) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	take := func(more func(line string) bool) (taken []string) {
		for len(lines) > 0 && more(lines[0]) {
			taken = append(taken, lines[0])
			lines = lines[1:]
		}
		return taken
	}
	starts := func(prefix string) func(string) bool {
		return func(line string) bool { return strings.HasPrefix(line, prefix) }
	}
	for len(lines) > 0 {
		switch line := lines[0]; {
		case strings.TrimSpace(line) == "":
			lines = lines[1:]
		case line == "```":
			lines = lines[1:]
			code := take(func(line string) bool { return line != "```" })
			lines = lines[min(1, len(lines)):]
			list = append(list, block{Code: strings.Join(code, "\n")})
		case strings.HasPrefix(line, "## "):
			heading := strings.TrimPrefix(line, "## ")
			list = append(list, block{Heading: heading, ID: slug(heading)})
			lines = lines[1:]
		case strings.HasPrefix(line, "- "):
			var items [][]span
			for _, item := range take(starts("- ")) {
				items = append(items, spans(item[2:]))
			}
			list = append(list, block{List: items})
		case strings.HasPrefix(line, "|"):
			var table [][][]span
			for _, row := range take(starts("|")) {
				if strings.HasPrefix(row, "|---") {
					continue
				}
				var cells [][]span
				for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(row[1:]), "|"), " |") {
					cells = append(cells, spans(strings.TrimSpace(cell)))
				}
				table = append(table, cells)
			}
			list = append(list, block{Table: table})
		default:
			list = append(list, block{Text: spans(strings.Join(take(func(line string) bool {
				return strings.TrimSpace(line) != "" && line != "```" && !slices.ContainsFunc([]string{"## ", "- ", "|"}, func(p string) bool { return strings.HasPrefix(line, p) })
			}), " "))})
		}
	}
	return list
}

// spans reads a line.
func spans(line string) (list []span) {
	plain := ""
	flush := func() {
		if plain != "" {
			list = append(list, span{Text: plain})
			plain = ""
		}
	}
	for line != "" {
		switch line[0] {
		case '`':
			if code, rest, ok := strings.Cut(line[1:], "`"); ok {
				flush()
				list = append(list, span{Text: code, Code: true})
				line = rest
				continue
			}
		case '[':
			text, rest, ok := strings.Cut(line[1:], "](")
			link, rest, closed := strings.Cut(rest, ")")
			if ok && closed && strings.HasPrefix(link, "#") {
				flush()
				list = append(list, span{Text: text, Link: link})
				line = rest
				continue
			}
		}
		plain += line[:1]
		line = line[1:]
	}
	flush()
	return list
}

// slug is the place of a heading.
func slug(heading string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return '-'
	}, heading), "-")
}
