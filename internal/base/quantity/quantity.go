package quantity

import (
	"errors"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// LongExponent is a regular expression for an exponent of at least four digits beside leading zeros.
const LongExponent = `[eE][-+]?0*[1-9][0-9]{3,}`

var endsLong = regexp.MustCompile(LongExponent + "$")

var errExponent = errors.New("the exponent has more than three digits")

// Check returns an error for a quantity that resource.ParseQuantity, or a method of what it returns, may need minutes
// for: it makes all digits of a number such as 1e-99999999.
func Check(text string) error {
	if endsLong.MatchString(text) {
		return errExponent
	}
	return nil
}

// Parse is resource.ParseQuantity. It refuses what Check refuses.
func Parse(text string) (resource.Quantity, error) {
	if err := Check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text) //nolint:forbidigo // the text is checked
}
