// Package embedded has the settings of the runtime inside the agent. KubeletConfiguration does not know them. They come
// from flags, except the runtime handlers: those are in the field runtimes of the configuration files. Package config
// checks them.
package embedded
