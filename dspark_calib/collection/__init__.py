"""From prompts to a trace: responses, the verification law, anchors, the runner, the plain decoding loop."""
