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
	printStruct(&b, reflect.ValueOf(*c), "", "")
	_, err := io.WriteString(w, b.String())
	return err
}

// printStruct writes one line for each field; first is what stands before the first one.
func printStruct(b *strings.Builder, v reflect.Value, first, indent string) {
	lead := first
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		b.WriteString(lead + field.Tag.Get("koanf") + ":")
		lead = indent
		switch value.Kind() {
		case reflect.Struct:
			b.WriteByte('\n')
			printStruct(b, value, indent+"  ", indent+"  ")
		case reflect.Slice:
			if value.Len() == 0 {
				b.WriteString(" []\n")
				continue
			}
			b.WriteByte('\n')
			for k := range value.Len() {
				printStruct(b, value.Index(k), indent+"  - ", indent+"    ")
			}
		case reflect.Int:
			b.WriteString(" " + text(value) + "\n")
		default:
			b.WriteString(" " + strconv.Quote(text(value)) + "\n")
		}
	}
}
