package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// configFile is the flag that names the file with settings.
type configFile string

// BeforeResolve reads the file. Its settings become the values of those flags that neither
// the command line nor the environment sets.
func (configFile) BeforeResolve(ctx *kong.Context, trace *kong.Path, a *app) error {
	name, _ := ctx.FlagValue(trace.Flag).(configFile)
	if name == "" {
		name = configFile(os.Getenv("LEASEHOLD_CONFIG"))
	}
	if name == "" {
		return errors.New("--config is empty: want the name of a YAML file")
	}
	path := kong.ExpandPath(string(name))
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer file.Close()
	s, err := readSettings(file, settingNames(ctx.Model.Node))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	ctx.AddResolver(s)
	a.config = path
	return nil
}

// settings are the values in the file, by the names of the flags. They are a
// kong.Resolver.
type settings map[string]string

// readSettings reads one YAML map of flag names to values. For a key that is not in known
// it returns an error that names the key.
func readSettings(r io.Reader, known []string) (settings, error) {
	var file map[string]any
	if err := yaml.NewDecoder(r).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		// The first line of the error says what is wrong. The others draw the place.
		first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		return nil, fmt.Errorf("want YAML lines such as \"listen: 127.0.0.1:9333\": %s", first)
	}
	s := settings{}
	for key, value := range file {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("unknown key %q: want one of %s", key, strings.Join(known, ", "))
		}
		switch value.(type) {
		case string, bool, int, int64, uint64, float64:
			s[key] = fmt.Sprint(value)
		default:
			return nil, fmt.Errorf("key %q: want one value, text or a number or true or false", key)
		}
	}
	return s, nil
}

// settingNames returns the names of the flags that are settings: those that also have an
// environment variable. The other flags are for one invocation only.
func settingNames(root *kong.Node) []string {
	var names []string
	for _, node := range append([]*kong.Node{root}, root.Children...) {
		for _, flag := range node.Flags {
			if len(flag.Envs) > 0 && flag.Name != "config" && !slices.Contains(names, flag.Name) {
				names = append(names, flag.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Validate implements kong.Resolver. readSettings has checked every key.
func (settings) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. For kong a resolver overrides the environment; here the
// environment overrides the file.
func (s settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := s[flag.Name]
	if !ok || len(flag.Envs) == 0 || flag.Name == "config" {
		return nil, nil
	}
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	return value, nil
}
