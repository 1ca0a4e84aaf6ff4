// Package plugin finds the plugins of a node: programs that put a socket into
// <root>/plugins_registry and answer there what they are (pluginregistration v1).
//
// It owns nothing on disk: the sockets are the plugins'. What a plugin is good for
// is a Handler's matter, one for each type. A plugin is registered while its
// socket is there; a socket made anew under the same name is another plugin.
//
//	socket appears -> GetInfo -> Register -> NotifyRegistrationStatus -> socket goes -> Deregister
//	                     ^____________________ fails, later again
package plugin
