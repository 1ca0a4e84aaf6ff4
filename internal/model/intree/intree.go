package intree

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"
)

// Persistent returns the CSI volume that a PersistentVolume migrates to. It is a copy. ok is false if the volume does
// not migrate.
func Persistent(v *corev1.PersistentVolume) (migrated *corev1.PersistentVolume, ok bool, err error) {
	translator := csitranslation.New()
	if !translator.IsPVMigratable(v) {
		return nil, false, nil
	}
	migrated, err = translator.TranslateInTreePVToCSI(klog.Logger{}, v)
	if err != nil {
		return nil, true, fmt.Errorf("translate PersistentVolume %q to CSI: %w", v.Name, err)
	}
	return migrated, true, nil
}

// Inline returns the CSI volume that a volume in the spec of a pod migrates to. The PersistentVolume that describes it
// does not exist in the cluster. ok is false if the volume does not migrate. namespace is the pod's.
func Inline(v *corev1.Volume, namespace string) (migrated *corev1.PersistentVolume, ok bool, err error) {
	translator := csitranslation.New()
	if !translator.IsInlineMigratable(v) {
		return nil, false, nil
	}
	migrated, err = translator.TranslateInTreeInlineVolumeToCSI(klog.Logger{}, v, namespace)
	if err != nil {
		return nil, true, fmt.Errorf("translate volume %q to CSI: %w", v.Name, err)
	}
	return migrated, true, nil
}

// Plugins returns the sorted names of the plugins whose volumes migrate.
func Plugins() []string {
	names := []string{
		plugins.AWSEBSInTreePluginName, plugins.AzureDiskInTreePluginName, plugins.AzureFileInTreePluginName,
		plugins.CinderInTreePluginName, plugins.GCEPDInTreePluginName, plugins.PortworxVolumePluginName,
		plugins.VSphereInTreePluginName,
	}
	slices.Sort(names)
	return names
}
