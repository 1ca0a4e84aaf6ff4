// Package gate reads the feature gates of a KubeletConfiguration. It knows which features the gates switch, and which
// fields of the configuration need a gate. Package config reads it once, when it builds a Config.
package gate
