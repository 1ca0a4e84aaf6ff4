// Package command contains the parts that the berth commands share: the global flags, the namespace and output
// flags, pod arguments with their completion, manifest files, and exit statuses.
//
// It owns no state. Each command embeds the flags that it needs.
package command
