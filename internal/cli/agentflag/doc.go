// Package agentflag defines the flags of the commands that build an agent. They fill a config.Flags, which
// documents each field. Package config checks the values.
package agentflag
