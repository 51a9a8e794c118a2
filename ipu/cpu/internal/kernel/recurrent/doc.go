// Package recurrent computes LSTM, GRU and RNN layers: all inputs by their weights
// in one product, then step by step the hidden state by its weights, gates and cells;
// workers share directions, batch entries or the hidden units of each step.
package recurrent
