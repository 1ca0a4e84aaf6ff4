// Package agentflag has the flags of the commands that make an agent. They set
// a config.Flags, which says what each means; package config checks them.
package agentflag
