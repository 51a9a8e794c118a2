package plan

import (
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// some is what files might declare.
var some = &Declared{
	Owners: map[string]string{
		"Inputs": "the package", "NewInputs": "the package", "Outputs": "the package", "Open": "the package", "Runner": "the package", "Example": "the tests",
	},
	Packages: map[string]bool{"context": true, "rt": true},
	Tensors:  map[Kind][]string{{}: {"%s", "%sFrom", "Anchor%s"}, {Samples: true}: {"%s", "%sFrom", "Anchor%s", "%sSample"}},
}

func TestGoName(t *testing.T) {
	for in, want := range map[string]string{
		"image":                    "Image",
		"input/1":                  "Input1",
		"weight_d2h_init_input/1":  "WeightD2hInitInput1",
		"fc/fc/model/fc/fc/Gemm:0": "FcFcModelFcFcGemm0",
		"infeed_0.10":              "Infeed0_10",
		"INPUT__0":                 "INPUT0",
		"2d/conv":                  "X2dConv",
		"1.0":                      "X1_0",
		"type":                     "Type",
		"größe":                    "Größe",
		"überGröße":                "ÜberGröße",
		"画像":                       "X画像",
		"emoji 🚀 rocket":           "EmojiRocket",
		"e\u0301te\u0301":          "ETe",
		"\xff\xfe a":               "A",
		"\u202egnp.exe":            "GnpExe",
		"":                         "",
		"_/:.-":                    "",
		strings.Repeat("a", 500):   "A" + strings.Repeat("a", maxIdent-1),
	} {
		require.Equal(t, want, goName(in), "%q", in)
	}
}

func TestPackageName(t *testing.T) {
	for in, want := range map[string]string{
		"digits.popef":         "digits",
		"ResNet50_v1.5.popef":  "resnet50v1",
		"my model-2.popef":     "mymodel2",
		"2d.popef":             "model2d",
		"func.popef":           "modelfunc",
		"main.popef":           "modelmain",
		"rt.popef":             "modelrt",
		"string.popef":         "modelstring",
		"executable.popef":     "executable",
		"模型.popef":             "model",
		".popef":               "model",
		"":                     "model",
		"linux_amd64.popef":    "linuxamd64",
		"foo_test.popef":       "footest",
		"UNHASHED_EXECUTABLE.": "unhashedexecutable",
	} {
		require.Equal(t, want, PackageName(in, some), "%q", in)
		require.NoError(t, checkPackage(PackageName(in, some), some))
	}
}

func TestCheckPackage(t *testing.T) {
	for _, bad := range []string{"", "2d", "a-b", "func", "main", "init", "_", "x_test", "rt", "context", "string", "a b"} {
		require.Error(t, checkPackage(bad, some), "%q", bad)
	}
	for _, good := range []string{"digits", "my_model", "Digits", "模型"} {
		require.NoError(t, checkPackage(good, some), "%q", good)
	}
}

// FuzzGoName checks that every string gives an exported identifier or none.
func FuzzGoName(f *testing.F) {
	for _, seed := range []string{"input/1", "0.0", "ʰa", "ǅungla", "ß", "ﬁne", "٣", "画", "\xf0\x28", "a\x00b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := goName(s)
		if name != "" && (!token.IsIdentifier(name) || !token.IsExported(name)) {
			t.Fatalf("goName(%q) = %q", s, name)
		}
		if utf8.RuneCountInString(name) > maxIdent {
			t.Fatalf("goName(%q) has %d runes", s, utf8.RuneCountInString(name))
		}
		if err := checkPackage(PackageName(s, some), some); err != nil {
			t.Fatalf("PackageName(%q): %v", s, err)
		}
	})
}

// TestNamesAreDistinct takes names that are likely to clash and checks that
// the table hands out distinct families.
func TestNamesAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wishes := rapid.SliceOfN(rapid.SampledFrom([]string{
			"X", "XFrom", "XFromFrom", "AnchorX", "Anchor", "AnchorXFrom", "X2", "X2_2", "X22", "Inputs", "Inputs2", "From",
			"Open", "Runner", "AnchorAnchor", "AnchorAnchorX", "Example", "Contract00000000",
		}), 0, 40).Draw(t, "wishes")
		n := newNames(some, "Contract00000000", Kind{Samples: true}, nil)
		for _, w := range wishes {
			n.wished[w] = true
		}
		seen := map[string]bool{"Inputs": true, "Open": true, "Runner": true, "Example": true, "Contract00000000": true}
		for _, w := range wishes {
			if n.holder(w) != "" {
				w = n.suffixed(w)
			}
			n.take(w, w)
			for _, id := range n.family(w) {
				if seen[id] {
					t.Fatalf("%v: %s is declared twice", wishes, id)
				}
				seen[id] = true
			}
		}
	})
}
