// Package live says which answers of the local API have changed, for the answers without a watch of their own: images,
// starts and topology. It keeps no state. The parts of the agent that own these report their changes.
package live
