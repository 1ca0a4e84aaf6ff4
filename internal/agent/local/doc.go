// Package local answers the commands on this machine, which use the local API. Each type implements interfaces of
// package server with the parts of the agent that it lists: Pods, Images, Objects and Node. It owns no state and starts
// nothing.
package local
