package objects

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/model/object"
)

// kindOf returns the kind for a word such as configmap, configmaps or cm.
func kindOf(word string) (object.Kind, bool) {
	word = strings.ToLower(word)
	for _, k := range object.Kinds() {
		if word == k.Resource || word == strings.ToLower(k.Name) || slices.Contains(k.Aliases, word) {
			return k, true
		}
	}
	return object.Kind{}, false
}

// Words returns the words for the kinds, such as configmap.
func Words() (words []string) {
	for _, k := range object.Kinds() {
		words = append(words, strings.ToLower(k.Name))
	}
	return words
}

// Arguments returns the objects in arguments of the form KIND NAME... or KIND/NAME..., as kubectl accepts
// them. It returns false if the arguments are pods.
func Arguments(namespace string, args []string) (keys []object.Key, ok bool) {
	if len(args) == 0 {
		return nil, false
	}
	if kind, named := kindOf(args[0]); named {
		for _, name := range args[1:] {
			keys = append(keys, kind.Key(namespace, name))
		}
		return keys, len(keys) > 0
	}
	for _, arg := range args {
		word, name, _ := strings.Cut(arg, "/")
		kind, known := kindOf(word)
		if !known || name == "" {
			return nil, false
		}
		keys = append(keys, kind.Key(namespace, name))
	}
	return keys, true
}

// Delete deletes applied objects and returns the errors. With ignoreMissing, a missing object is not an
// error.
func Delete(cmd *cobra.Command, c *client.Client, keys []object.Key, ignoreMissing bool) (failed []error) {
	for _, key := range keys {
		kind, _ := object.KindNamed(key.Kind)
		err := c.Objects(kind).Delete(cmd.Context(), key)
		switch {
		case err == nil:
			fmt.Fprintf(cmd.OutOrStdout(), "%s/%s deleted\n", strings.ToLower(key.Kind), key.Name)
		case !ignoreMissing || !apierrors.IsNotFound(err):
			failed = append(failed, err)
		}
	}
	return failed
}

// getting holds the flags of "berth get KIND".
type getting struct {
	kind                      object.Kind
	namespace, labels, format string
	all                       bool
}

// Commands returns a command "berth get KIND" for each kind.
func Commands(c func() *client.Client) []*cobra.Command {
	var all []*cobra.Command
	for _, kind := range object.Kinds() {
		all = append(all, kindCommand(c, kind))
	}
	return all
}

func kindCommand(c func() *client.Client, kind object.Kind) *cobra.Command {
	g := getting{kind: kind}
	cmd := &cobra.Command{
		Use:     kind.Resource + " [NAME]",
		Aliases: append([]string{strings.ToLower(kind.Name)}, kind.Aliases...),
		Short:   "List the objects of kind " + kind.Name,
		Example: "  berth get " + kind.Resource,
		Args:    command.Usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "yaml", "name"}, g.format) {
				return client.Next(fmt.Errorf("output format %q is not known", g.format),
					"use one of json, yaml, name")
			}
			if len(args) == 1 {
				return g.one(cmd, c(), args[0])
			}
			return g.list(cmd, c())
		},
	}
	if kind.Namespaced {
		cmd.Flags().StringVarP(&g.namespace, "namespace", "n", "default", "`namespace`")
		cmd.Flags().BoolVarP(&g.all, "all-namespaces", "A", false, "all namespaces")
		cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	}
	cmd.Flags().StringVarP(&g.format, "output", "o", "", "output `format`: json, yaml, name")
	cmd.Flags().StringVarP(&g.labels, "selector", "l", "", "label `selector`, such as app=web")
	return cmd
}

func (g *getting) one(cmd *cobra.Command, c *client.Client, name string) error {
	if g.all {
		return client.Next(fmt.Errorf("an object name needs a single namespace"), "leave out -A, or the name")
	}
	v, err := c.Objects(g.kind).Get(cmd.Context(), g.kind.Key(g.namespace, name))
	if err != nil {
		return err
	}
	return g.print(cmd.OutOrStdout(), []object.Value{v}, v)
}

func (g *getting) list(cmd *cobra.Command, c *client.Client) error {
	namespace := g.namespace
	if g.all {
		namespace = ""
	}
	list, err := c.Objects(g.kind).List(cmd.Context(), client.Select{Namespace: namespace, Labels: g.labels})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 && g.format == "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "No %s found\n", g.kind.Resource)
	}
	return g.print(cmd.OutOrStdout(), list.Items, list)
}

// print prints objects in the chosen format. whole is the object or list that json and yaml show.
func (g *getting) print(w io.Writer, items []object.Value, whole any) error {
	switch g.format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(whole)
	case "yaml":
		text, err := yaml.Marshal(whole)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", text)
		return err
	case "name":
		for _, v := range items {
			fmt.Fprintf(w, "%s/%s\n", strings.ToLower(g.kind.Name), v.GetName())
		}
		return nil
	}
	return printer.Objects(w, g.kind, items, printer.Options{Namespaces: g.all}, time.Now())
}
