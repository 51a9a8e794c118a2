package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

func TestPlainOf(t *testing.T) {
	operation := "for r := range rows { // rows of lanes\n\tx[r*aRow] = lanes*vectors // lanes*vectors\n\ty[arows+lanes] = rows\n}"
	want := "for r := range 6 { // rows of lanes\n\tx[r*aRow] = 32 // lanes*vectors\n\ty[arows+16] = 6\n}"
	tile := tileOf{"some", variant{is: map[string]string{"rows": "6", "lanes": "16", "lanes*vectors": "32"}}}
	if d := cmp.Diff(want, tile.plainOf(operation)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(operation, tileOf{}.plainOf(operation)); d != "" {
		t.Errorf("an operation without tiles: %s", d)
	}
}

// TestTiled reads the assembly of an operation with tiles: the jumps to them by
// the fields that ask for each, and a function for each.
func TestTiled(t *testing.T) {
	text, stubs, err := assemble(func(a *asm) {
		write := func(reg.Register) { a.ret() }
		a.tiled("mul", "args", []variant{
			{tile: "4x32", asked: []asked{a.value("inner.vectors", 2), a.value("rows", 4)}, is: map[string]string{"n": "4"}, write: write},
			{tile: "3x32", asked: []asked{a.value("inner.vectors", 2), a.value("rows", 3)}, write: write},
			{tile: "1x16", asked: []asked{a.value("inner.vectors", 1)}, write: write},
		})
	}, avx2, room(t, "type args struct {\n\tinner struct{ x, vectors int }\n\trows int\n}"))
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`//.*\n|#include.*\n`).ReplaceAllString(string(text), "")
	want := strings.Fields(`TEXT ·mulAVX2(SB), NOSPLIT, $0-8
		MOVQ args+0(FP), AX
		CMPQ 8(AX), $0x02 JNE next1
		CMPQ 16(AX), $0x04 JNE next2 JMP ·mul_4x32_avx2(SB)
		next2: CMPQ 16(AX), $0x03 JNE next3 JMP ·mul_3x32_avx2(SB)
		next3: next1: CMPQ 8(AX), $0x01 JNE next4 JMP ·mul_1x16_avx2(SB)
		next4: RET
		TEXT ·mul_4x32_avx2(SB), NOSPLIT, $0-8 MOVQ args+0(FP), AX VZEROUPPER RET
		TEXT ·mul_3x32_avx2(SB), NOSPLIT, $0-8 MOVQ args+0(FP), AX VZEROUPPER RET
		TEXT ·mul_1x16_avx2(SB), NOSPLIT, $0-8 MOVQ args+0(FP), AX VZEROUPPER RET`)
	if d := cmp.Diff(want, strings.Fields(code)); d != "" {
		t.Error(d)
	}
	var names []string
	for _, s := range stubs {
		names = append(names, s.name+" "+s.operation+s.signature)
	}
	wantNames := []string{"mulAVX2 mul(args *args)", "mul_4x32_avx2 mul(args *args)", "mul_3x32_avx2 mul(args *args)", "mul_1x16_avx2 mul(args *args)"}
	if d := cmp.Diff(wantNames, names); d != "" {
		t.Error(d)
	}
	if got := stubs[1].tile.is["n"]; got != "4" {
		t.Errorf("the declaration of a tile has n %q, want 4", got)
	}
}

func TestCheckJumps(t *testing.T) {
	for _, frame := range []int{0, 8} {
		a := &asm{Context: build.NewContext(), isa: avx2}
		a.Function("f")
		a.Attributes(attr.NOSPLIT)
		a.SignatureExpr("func(x *float32)")
		if frame > 0 {
			a.AllocLocal(frame)
		}
		a.goTo("g")
		file, err := a.Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkJumps(file); (err != nil) != (frame > 0) || err != nil && !strings.Contains(err.Error(), "f has a frame of 8 bytes") {
			t.Errorf("a frame of %d bytes: %v", frame, err)
		}
	}
}

// room returns a package with some structs.
func room(t *testing.T, text string) *structs {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.com/room\n", "room.go": "package room\n\n" + text + "\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newLoader().dir(root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
