// Package plugin finds the plugins of a node. A plugin is a program that creates a socket in <root>/plugins_registry
// and describes itself there (pluginregistration v1).
//
// The package owns nothing on disk: the sockets belong to the plugins. What a plugin is used for is up to the Handler
// of its type. A plugin is registered while its socket exists. A socket created again under the same name is another
// plugin.
//
//	socket appears -> GetInfo -> Register -> NotifyRegistrationStatus -> socket goes -> Deregister
//	                     ^____________________ fails, retried later
package plugin
