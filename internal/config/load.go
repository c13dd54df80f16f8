package config

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// DefaultFile is read when it is there and no other file is named.
const DefaultFile = "rollcall.yaml"

const envPrefix = "ROLLCALL_"

// Variables that begin like an option but are something else: the client commands' own, the tests' data folder, and what
// Kubernetes puts into every pod beside a service named rollcall.
var foreign = []string{"ROLLCALL_URL", "ROLLCALL_KEY", "ROLLCALL_CONFIG", "ROLLCALL_SHARED"}
var foreignPrefix = []string{"ROLLCALL_SERVICE_", "ROLLCALL_PORT", "ROLLCALL_CRASH"}

// Sources says where to read options from.
type Sources struct {
	File    string         // "" = DefaultFile if it exists
	Environ []string       // as os.Environ gives it
	Flags   *pflag.FlagSet // flags made by AddFlags; nil = none
}

// AddFlags defines one flag for each option, named like the option. only restricts them to the named ones.
func AddFlags(fs *pflag.FlagSet, only ...string) {
	def := Default()
	for _, o := range options(reflect.ValueOf(&def).Elem(), "") {
		if len(only) == 0 || slices.Contains(only, o.name) {
			f := fs.VarPF(&textFlag{value: text(o.value)}, o.name, "", o.doc)
			f.DefValue = text(o.value)
		}
	}
}

// textFlag keeps what was given; decode judges it together with everything else.
type textFlag struct{ value string }

func (f *textFlag) String() string     { return f.value }
func (f *textFlag) Set(s string) error { f.value = s; return nil }
func (f *textFlag) Type() string       { return "value" }

// Load reads, completes and checks the configuration. The error is Faults with everything that is wrong.
func Load(s Sources) (Config, error) {
	c := Default()
	var faults Faults
	k := koanf.New(".")
	path := s.File
	if path == "" {
		if _, err := os.Stat(DefaultFile); err == nil {
			path = DefaultFile
		}
	}
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = errors.New("no such file")
			}
			faults.add(path, "%v", err)
		}
	}
	names := map[string]string{}
	for _, o := range options(reflect.ValueOf(&c).Elem(), "") {
		names[envName(o.name)] = o.name
	}
	fromEnv := env.Opt{Prefix: envPrefix, EnvironFunc: func() []string { return s.Environ }, TransformFunc: func(name, value string) (string, any) {
		key, ok := names[name]
		if !ok {
			unknownEnv(&faults, name, names)
		}
		return key, value
	}}
	if err := k.Load(env.Provider(".", fromEnv), nil); err != nil {
		faults.add("environment", "%v", err)
	}
	if s.Flags != nil {
		changed := func(f *pflag.Flag) (string, any) {
			if _, ours := f.Value.(*textFlag); !ours || !f.Changed {
				return "", nil
			}
			return f.Name, f.Value.String()
		}
		if err := k.Load(posflag.ProviderWithFlag(s.Flags, ".", nil, changed), nil); err != nil {
			faults.add("flags", "%v", err)
		}
	}
	decode(&faults, "", k.Raw(), reflect.ValueOf(&c).Elem())
	c.Complete()
	// An option that can't be read keeps its default, so that the others are still checked.
	faults = append(faults, c.Validate()...)
	return c, faults.Err()
}

func envName(option string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(option, ".", "_"))
}

func unknownEnv(f *Faults, name string, names map[string]string) {
	if slices.Contains(foreign, name) || slices.ContainsFunc(foreignPrefix, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return
	}
	var known []string
	for n := range names {
		known = append(known, n)
	}
	unknown(f, name, name, known)
}

// unknown adds the fault that there is no such option; name is its last part, known are that part's siblings.
func unknown(f *Faults, at, name string, known []string) {
	slices.Sort(known)
	if near := nearest(name, known); near != "" {
		f.add(at, "there is no such option; did you mean %s?", near)
	} else {
		f.add(at, "there is no such option; known are %s", strings.Join(known, ", "))
	}
}

// decode fills v from what the layers gave. Lists are replaced as a whole.
func decode(f *Faults, at string, from any, v reflect.Value) {
	_, list := from.([]any)
	switch {
	case isText(v) && !list:
		decodeText(f, at, from, v)
	case v.Kind() == reflect.Struct:
		m, ok := from.(map[string]any)
		if !ok {
			if from != nil { // "redis:" with nothing below it says nothing
				f.add(at, "want options below it")
			}
			return
		}
		decodeStruct(f, at, m, v)
	case v.Kind() == reflect.Slice:
		list, ok := from.([]any)
		if !ok {
			if from != nil {
				f.add(at, "want a list")
			}
			return
		}
		v.SetZero()
		if len(list) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		}
		for i, x := range list {
			decode(f, item(at, i), x, v.Index(i))
		}
	default:
		decodeText(f, at, from, v)
	}
}

// decodeText reads one value.
func decodeText(f *Faults, at string, from any, v reflect.Value) {
	switch from.(type) {
	case nil, map[string]any, []any:
		f.add(at, "want one value")
		return
	}
	written := fmt.Sprint(from)
	if t, ok := from.(time.Time); ok { // YAML reads an instant, or a date, that is not quoted
		written = t.Format(time.RFC3339)
	}
	if err := set(v, written); err != nil {
		f.add(at, "%v", err)
	}
}

// isText tells whether a value is written as one text, whatever it is made of.
func isText(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return ok
}

// members calls f for each field of a struct; those of an embedded struct are its own.
func members(v reflect.Value, f func(reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		if field := v.Type().Field(i); field.Anonymous {
			members(v.Field(i), f)
		} else {
			f(field, v.Field(i))
		}
	}
}

func decodeStruct(f *Faults, at string, m map[string]any, v reflect.Value) {
	fields := map[string]reflect.Value{}
	var known []string
	members(v, func(field reflect.StructField, value reflect.Value) {
		name := field.Tag.Get("koanf")
		fields[name] = value
		known = append(known, name)
	})
	given := make([]string, 0, len(m))
	for name := range m {
		given = append(given, name)
	}
	slices.Sort(given) // faults come in the same order each time
	for _, name := range given {
		full := name
		if at != "" {
			full = at + "." + name
		}
		if field, ok := fields[name]; ok {
			decode(f, full, m[name], field)
		} else {
			unknown(f, full, name, known)
		}
	}
}

// set parses one value. Its errors never repeat the value, which may be a secret.
func set(v reflect.Value, s string) error {
	if t, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return t.UnmarshalText([]byte(s))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Int:
		n, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("want a whole number")
		}
		v.SetInt(int64(n))
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("want true or false")
		}
		v.SetBool(b)
	default:
		panic("config: a field of kind " + v.Kind().String())
	}
	return nil
}

// option is one leaf of Config outside lists.
type option struct {
	name, doc string
	value     reflect.Value
}

func options(v reflect.Value, prefix string) (all []option) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := prefix + f.Tag.Get("koanf")
		switch {
		case isText(v.Field(i)):
			all = append(all, option{name, f.Tag.Get("doc"), v.Field(i)})
		case f.Type.Kind() == reflect.Struct:
			all = append(all, options(v.Field(i), name+".")...)
		case f.Type.Kind() == reflect.Slice: // projects: only in the file
		default:
			all = append(all, option{name, f.Tag.Get("doc"), v.Field(i)})
		}
	}
	return all
}

func text(v reflect.Value) string { return fmt.Sprint(v.Interface()) }
