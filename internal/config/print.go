package config

import (
	"io"
	"reflect"
	"strconv"
	"strings"
)

// Print writes the configuration as a file that Load reads, with secrets as ***.
func (c *Config) Print(w io.Writer) error {
	var b strings.Builder
	printStruct(&b, reflect.ValueOf(c).Elem(), "", "")
	_, err := io.WriteString(w, b.String())
	return err
}

// printStruct writes one line for each field; first is what stands before the first one.
func printStruct(b *strings.Builder, v reflect.Value, first, indent string) {
	lead := first
	members(v, func(field reflect.StructField, value reflect.Value) {
		b.WriteString(lead + field.Tag.Get("koanf") + ":")
		lead = indent
		switch {
		case isText(value):
			b.WriteString(" " + strconv.Quote(text(value)) + "\n")
		case value.Kind() == reflect.Struct:
			b.WriteByte('\n')
			printStruct(b, value, indent+"  ", indent+"  ")
		case value.Kind() == reflect.Slice && value.Len() == 0:
			b.WriteString(" []\n")
		case value.Kind() == reflect.Slice:
			b.WriteByte('\n')
			for k := range value.Len() {
				printItem(b, value.Index(k), indent)
			}
		case value.Kind() == reflect.String:
			b.WriteString(" " + strconv.Quote(text(value)) + "\n")
		default:
			b.WriteString(" " + text(value) + "\n")
		}
	})
}

func printItem(b *strings.Builder, v reflect.Value, indent string) {
	if v.Kind() == reflect.Struct {
		printStruct(b, v, indent+"  - ", indent+"    ")
		return
	}
	b.WriteString(indent + "  - " + strconv.Quote(text(v)) + "\n")
}
