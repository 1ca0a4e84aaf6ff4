// Package outbox delivers events to containerd. It keeps them in memory while containerd is away.
package outbox
