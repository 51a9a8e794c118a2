package rest

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// object is an object of the document, whose keys JSON sorts.
type object map[string]any

// described says what each call does; its key is the method and the path as in routes.
var described = map[string]string{
	"POST v2/models/{model}/infer":             "Compute the outputs of inputs. With the header Inference-Header-Content-Length tensors may follow the JSON as bytes.",
	"GET v2":                                   "What the server is and which extensions it has.",
	"GET v2/health/live":                       "Whether the server runs.",
	"GET v2/health/ready":                      "Whether requests should be sent to the server.",
	"GET v2/models/stats":                      "What is counted of all models.",
	"GET v2/models/{model}":                    "The inputs and outputs of a model.",
	"GET v2/models/{model}/ready":              "Whether a model takes requests.",
	"GET v2/models/{model}/config":             "The configuration of a model.",
	"GET v2/models/{model}/stats":              "What is counted of a model.",
	"POST v2/repository/index":                 "Which models there are, and why one does not serve.",
	"POST v2/repository/models/{model}/load":   "Load a model, or load it again.",
	"POST v2/repository/models/{model}/unload": "Take a model out of service.",
	"GET v2/openapi.json":                      "This document.",
	"GET metrics":                              "What is counted, for Prometheus.",
}

// openAPI answers with a description of the calls, and of the tensors of every model, as OpenAPI 3.1.
func (h *handler) openAPI(q *request) error {
	paths := object{}
	for i := range h.routes {
		t := &h.routes[i]
		key := t.method + " " + strings.Join(t.path, "/")
		text, ok := described[strings.Replace(key, "/versions/{version}", "", 1)]
		if !ok || strings.HasPrefix(key, "POST v2/repository/models") && h.options.Repository == nil || key == "GET metrics" && h.options.Metrics == nil {
			continue
		}
		call := object{"summary": text, "tags": []string{t.api.String()}, "responses": answers(object{"type": "object"})}
		var params []object
		for _, part := range t.path {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				params = append(params, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true, "schema": object{"type": "string"}})
			}
		}
		if params != nil {
			call["parameters"] = params
		}
		if t.api.String() == "infer" {
			call["requestBody"] = body(object{"type": "object"})
		}
		paths["/"+strings.Join(t.path, "/")] = object{strings.ToLower(t.method): call}
	}
	schemas := object{"error": object{"type": "object", "required": []string{"error"}, "properties": object{
		"error": object{"type": "string"}, "code": object{"type": "string"}, "contract": object{"type": "string"},
	}}}
	for _, name := range h.core.Names() {
		v, err := h.core.Lookup([]byte(name), nil)
		if err != nil {
			continue // unloaded in between
		}
		schemas[name+".request"] = requestSchema(v.Spec)
		schemas[name+".answer"] = answerSchema(v.Spec)
		v.Release()
		paths["/v2/models/"+name+"/infer"] = object{"post": object{
			"summary": "Compute the outputs of model " + name + ".", "tags": []string{"infer"},
			"requestBody": body(reference(name + ".request")),
			"responses":   answers(reference(name + ".answer")),
		}}
	}
	return h.json(q, object{
		"openapi":    "3.1.0",
		"info":       object{"title": h.options.Name, "version": h.options.Version, "description": "Open Inference Protocol, version 2"},
		"paths":      paths,
		"components": object{"schemas": schemas},
	})
}

func reference(schema string) object {
	schema = strings.NewReplacer("~", "~0", "/", "~1").Replace(schema)
	return object{"$ref": "#/components/schemas/" + schema}
}

func body(schema object) object {
	return object{"required": true, "content": object{"application/json": object{"schema": schema}}}
}

func answers(schema object) object {
	return object{
		"200":     object{"description": "The answer.", "content": object{"application/json": object{"schema": schema}}},
		"default": object{"description": "What went wrong.", "content": object{"application/json": object{"schema": reference("error")}}},
	}
}

func requestSchema(spec *oip.Spec) object {
	var inputs, names []string
	var forms []object
	for i := range spec.Inputs {
		inputs = append(inputs, spec.Inputs[i].Name)
		forms = append(forms, tensorSchema(&spec.Inputs[i]))
	}
	for i := range spec.Outputs {
		names = append(names, spec.Outputs[i].Name)
	}
	return object{"type": "object", "required": []string{"inputs"}, "additionalProperties": false, "properties": object{
		"id":         object{"type": "string", "maxLength": wire.MaxID},
		"parameters": object{"type": "object", "maxProperties": wire.MaxParameters},
		"inputs": object{
			"type": "array", "minItems": len(inputs), "maxItems": len(inputs), "items": object{"oneOf": forms},
			"description": "each of " + strings.Join(inputs, ", ") + " once",
		},
		"outputs": object{"type": "array", "maxItems": len(names), "items": object{
			"type": "object", "required": []string{"name"}, "properties": object{"name": object{"enum": names}, "parameters": object{"type": "object"}},
		}},
	}}
}

func answerSchema(spec *oip.Spec) object {
	var forms []object
	for i := range spec.Outputs {
		forms = append(forms, tensorSchema(&spec.Outputs[i]))
	}
	return object{"type": "object", "properties": object{
		"id": object{"type": "string"}, "model_name": object{"const": spec.Name}, "model_version": object{"type": "string"},
		"outputs": object{"type": "array", "items": object{"oneOf": forms}},
	}}
}

func tensorSchema(t *oip.Tensor) object {
	element := object{"type": "number"}
	switch t.Type {
	case oip.Bool:
		element = object{"type": "boolean"}
	case oip.FP16, oip.FP32, oip.FP64, oip.BF16:
	default:
		element = object{"type": "integer"}
	}
	return object{
		"type": "object", "required": []string{"name", "datatype", "shape"},
		"description": fmt.Sprintf("shape %s", wire.Shape(t)),
		"properties": object{
			"name": object{"const": t.Name}, "datatype": object{"const": t.Type.String()},
			"shape":      object{"type": "array", "minItems": len(t.Shape), "maxItems": len(t.Shape), "items": object{"type": "integer"}},
			"parameters": object{"type": "object"},
			"data":       object{"type": "array", "maxItems": t.MaxElements(), "items": object{"anyOf": []object{element, {"type": "array"}}}},
		},
	}
}
